// Browsers start no worker from a file. Where the site is opened from a folder, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  let frames = 0;
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onerror = null;
      const name = `frame-${frames++}`;
      addEventListener(name, (event) => this.dispatchEvent(new MessageEvent("message", { data: event.detail })));
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      frame.srcdoc =
        `<script>self.postMessage = (data) =>` +
        ` parent.dispatchEvent(new CustomEvent(${JSON.stringify(name)}, { detail: data }))</script>` +
        `<script src=${JSON.stringify(new URL(url, document.baseURI).href)}></script>`;
      this.ready = new Promise((resolve) => {
        frame.onload = () => resolve(frame.contentWindow);
      });
      (document.body || document.documentElement).append(frame);
    }
    postMessage(data) {
      this.ready.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
