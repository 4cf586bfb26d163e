// The button beside a block of commands copies it. That below a table, and that of an alert, copy them as Markdown.
(() => {
  const plain = (element) => element.innerText.replace(/\s+/g, " ").trim();
  const cell = (element) => plain(element).replaceAll("|", "\\|").replaceAll("<", "&lt;");
  const line = (cells) => `| ${cells.join(" | ")} |`;

  const markdown = (table) => {
    const [head, ...rows] = [...table.rows].map((row) => [...row.cells].map(cell));
    return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
  };

  const fact = (term) => {
    const commands = term.nextElementSibling.querySelector("pre");
    const block = commands && `\n\n\`\`\`\n${commands.textContent.trim()}\n\`\`\``;
    return `- ${plain(term)}:${block || ` ${plain(term.nextElementSibling)}`}`;
  };

  // Headings, facts, sentences, lists, tables and commands of an alert, in their order.
  const story = (page) => {
    const written = {
      H1: (one) => `# ${plain(one)}`,
      H2: (one) => `## ${plain(one)}`,
      P: plain,
      DT: fact,
      LI: (one) => `- ${plain(one)}`,
      TABLE: markdown,
    };
    const parts = [...page.querySelectorAll("h1, h2, p, dt, li, table")].filter((one) => one.checkVisibility() && !one.closest(".source"));
    return [...parts.map((one) => written[one.tagName](one)), location.href].join("\n\n").replace(/\n\n(?=- )/g, "\n");
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const block = button.parentElement.querySelector("pre, table") || document.getElementById("alert-body");
    const label = button.textContent;
    const text = { PRE: (one) => one.textContent, TABLE: markdown, DIV: story }[block.tagName](block);
    let copied = false;
    try {
      await navigator.clipboard.writeText(text);
      copied = true;
    } catch {
      // A page that is not served over HTTPS, nor by localhost, has no clipboard to write to: there the button selects
      // the text, and the browser's own command copies what is selected.
      getSelection().selectAllChildren(block);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  // A table gets its button when the pointer or the focus is near.
  const approached = (event) => {
    const card = event.target.closest && event.target.closest(".card.table:has(> table)");
    if (!card || card.querySelector(":scope > .copy")) return;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy over", textContent: "Copy as Markdown" });
    card.append(button);
  };
  document.addEventListener("pointerover", approached);
  document.addEventListener("focusin", approached);
})();
