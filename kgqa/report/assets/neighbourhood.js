// A part of a knowledge graph, after tables.js and graph.js: the triples stand in the page as JSON.

const { triples, titles } = JSON.parse(document.getElementById("triples").textContent);
document.getElementById("graph").append(graphView(triples), triplesView(triples, new Map(Object.entries(titles))));
document.documentElement.dataset.ready = "yes";
