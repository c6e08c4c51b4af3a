// Browsers start no worker from a file. For a site that is opened from disk, run the worker's script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) =>
        urls.reduce((loaded, each) => loaded.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(url);
    }
    load(url) {
      const script = this.inside.document.createElement("script");
      script.src = url;
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
