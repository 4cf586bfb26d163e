// A link to the same page with another query loads the page. Dash draws a page only when its path changes, because a
// page writes its own choices into the query.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname !== location.pathname || link.search === location.search) return;
  event.preventDefault();
  event.stopPropagation();
  location.assign(link.href);
}, true);
