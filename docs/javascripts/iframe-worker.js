/* Search in pages that are opened as files. A browser starts no worker for such a page, so a hidden frame takes the
   place of the worker: it loads the same script, and messages are passed on as events. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = this.inside.document.createElement("script");
          script.src = source;
          script.onload = resolve;
          script.onerror = reject;
          this.inside.document.body.appendChild(script);
        });
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.isReady = load(url);
      this.frame = frame;
    }

    postMessage(data) {
      this.isReady.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
