// What scrolls can be reached by the keyboard, and each copy button says whose it is.
const mended = () => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
    each.tabIndex = 0;
  }
  document.querySelectorAll(".md-code__nav").forEach((each, number) => {
    each.setAttribute("aria-label", `Code block ${number + 1}`);
  });
};
addEventListener("DOMContentLoaded", () => {
  mended();
  new MutationObserver(mended).observe(document.body, { childList: true, subtree: true });
});
