// The button below a block of commands copies it. A page that is not served over HTTPS, nor by localhost, has no
// clipboard to write to: there the button selects the text, and the browser's own command copies what is selected.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  const block = button && button.parentElement.querySelector("pre");
  if (!block) return;
  let copied = false;
  try {
    await navigator.clipboard.writeText(block.textContent);
    copied = true;
  } catch {
    getSelection().selectAllChildren(block);
    copied = document.execCommand("copy");
  }
  button.textContent = copied ? "Copied" : "Selected";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
