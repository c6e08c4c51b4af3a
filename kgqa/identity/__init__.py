"""Identify what can change a reply or an answer: settings, what components load, and the code of programs."""
