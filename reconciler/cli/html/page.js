"use strict";
// Shows the rows of the page: what others named is only ever put in as text (textContent), never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const CHUNK = 100; // rows that are added to a list at once
  const AT_FIRST = 300; // rows of the whole page that are there when it opens
  const UNFOLDED = 20; // rows of danger that are unfolded when it opens
  const PRINTED = 1000; // rows that are printed with all they say; of more only danger is
  const GRAVE = ["blocked", "danger", "fails", "ignored", "now"];
  const isGrave = (flag) => !["ignored", "now"].includes(flag);
  const host = document.getElementById("rows");
  const number = new Intl.NumberFormat("en");
  const picked = { chips: new Set(), kind: "", cluster: "", owner: "", words: [] };
  let isAllOpen = false;
  let isPrinting = false;

  const make = (name, className, ...inside) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    for (const each of inside) {
      if (each !== null && each !== undefined) element.append(each); // a string becomes a text node
    }
    return element;
  };
  const of = (element, attributes) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const counted = (count, noun) => `${number.format(count)} ${noun}${count === 1 ? "" : "s"}`;

  // What there is: every row knows its group, every group its section.

  const groups = [];
  const all = [];
  const byKey = new Map();
  for (const section of data.sections) {
    for (const given of section.groups) {
      const group = { section, title: given.title, rows: given.rows, kept: given.rows, shown: 0, chosen: null };
      groups.push(group);
      given.rows.forEach((row, index) => {
        row.group = group;
        row.index = index;
        all.push(row);
        if (row.key) byKey.set(row.key, row);
      });
    }
  }

  const haystack = (row) =>
    (row.haystack ??= [
      row.name, row.verb, row.kind, row.cluster, row.owner, row.source,
      ...(row.what ?? []), ...(row.notes ?? []), ...(row.flags ?? []), ...(row.fields ?? []).flat(),
    ].filter(Boolean).join("\n").toLowerCase());

  const isKept = (row) =>
    (!picked.chips.size || picked.chips.has(row.verb) || (row.flags ?? []).some((flag) => picked.chips.has(flag))) &&
    (!picked.kind || row.kind === picked.kind) &&
    (!picked.cluster || row.cluster === picked.cluster) &&
    (!picked.owner || row.owner === picked.owner) &&
    picked.words.every((word) => haystack(row).includes(word));

  // Copying.

  const copied = (text, button) => {
    const done = () => {
      const before = button.textContent;
      button.textContent = "copied";
      say("Copied.");
      setTimeout(() => { button.textContent = before; }, 1500);
    };
    const byHand = () => {
      const area = make("textarea", "away");
      area.value = text;
      document.body.append(area);
      area.select();
      if (document.execCommand("copy")) done();
      area.remove();
      button.focus();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
    else byHand();
  };
  const copyButton = (text, label) => {
    const button = of(make("button", "copy", "copy"), { type: "button", "aria-label": `Copy ${label}` });
    button.addEventListener("click", () => copied(text, button));
    return button;
  };

  // One row.

  const sourceLink = (source) => {
    const cut = source.lastIndexOf(":");
    const [file, line] = /^\d+$/.test(source.slice(cut + 1)) ? [source.slice(0, cut), source.slice(cut + 1)] : [source, ""];
    const shown = make("bdi", "", source);
    if (!data.sources) return make("code", "", shown);
    const path = file.split("/").map(encodeURIComponent).join("/");
    return make("code", "", of(make("a", "", shown), { href: `${data.sources}${path}${line ? `#L${line}` : ""}` }));
  };
  const rowLink = (key) => of(make("a", "", make("bdi", "", key)), { href: `#row=${encodeURIComponent(key)}` });

  const fieldTable = (row) => {
    const head = make("tr", "", of(make("th", "mark", make("span", "away", "change")), { scope: "col" }));
    for (const name of ["field", ...data.columns]) head.append(of(make("th", "", name), { scope: "col" }));
    const body = make("tbody");
    const words = { "+": "added", "-": "removed", "~": "changed" };
    for (const [sign, path, ...values] of row.fields) {
      const mark = make("td", `mark ${sign === "+" ? "add" : sign === "-" ? "remove" : sign === "~" ? "change" : ""}`);
      mark.append(of(make("span", "", sign === "-" ? "−" : sign), { "aria-hidden": "true" }));
      mark.append(make("span", "away", words[sign] ?? "same"));
      const line = make("tr", "", mark, of(make("th", "", make("bdi", "", path)), { scope: "row" }));
      values.forEach((value, side) => {
        const isLast = side === values.length - 1;
        const tint = data.columns[0] !== "before" || value === null ? "" : isLast ? "new" : "old";
        line.append(make("td", tint, value === null ? make("span", "none", "—") : make("bdi", "", value)));
      });
      body.append(line);
    }
    return make("div", "scroll", make("table", "fields", make("thead", "", head), body));
  };

  const bodyOf = (row) => {
    const body = make("div", "body");
    const more = (row.what ?? []).slice(1);
    if (more.length) body.append(make("ul", "more", ...more.map((each) => make("li", "", make("bdi", "", each)))));
    for (const note of row.notes ?? []) body.append(make("p", "note", make("bdi", "", note)));
    if (row.fields) body.append(fieldTable(row));
    for (const [label, text] of row.copies ?? []) {
      const code = make("code", "", make("bdi", "", text));
      body.append(make("p", "paste", make("span", "label", `${label} `), code, " ", copyButton(text, label)));
    }
    const facts = make("dl", "facts");
    const fact = (label, ...value) => facts.append(make("div", "", make("dt", "", label), make("dd", "", ...value)));
    for (const [label, value] of row.facts ?? []) fact(label, make("bdi", "", value));
    if (row.owner) fact("owner", make("bdi", "", row.owner));
    if (row.after) {
      const first = row.after.slice(0, UNFOLDED).map((key) => (byKey.has(key) ? rowLink(key) : make("bdi", "", key)));
      const left = row.after.length - first.length;
      fact("after", ...first.flatMap((link, index) => (index ? [", ", link] : [link])), left > 0 ? ` and ${left} more` : null);
    }
    if (row.commit) {
      const shown = make("bdi", "", row.commit);
      const link = data.commits ? of(make("a", "", shown), { href: `${data.commits}${encodeURIComponent(row.commit)}` }) : shown;
      fact("commit", make("code", "", link), " ", copyButton(row.commit, "commit"));
    }
    if (row.source) fact("declared in", sourceLink(row.source));
    if (facts.childElementCount) body.append(facts);
    return body;
  };

  const isUrgent = (row, most) => row.group.section.open && row.index < most;
  const isPrintedWhole = (row) => all.length <= PRINTED || isUrgent(row, PRINTED);
  const elementOf = (row) => {
    const grave = (row.flags ?? []).filter((flag) => flag !== "danger");
    const size = row.size ? make("span", "size", row.size) : null;
    const summary = make(
      "summary", "",
      of(make("span", `sign ${row.tone}`, row.sign), { "aria-hidden": "true" }),
      make("span", `verb ${row.tone}`, row.verb),
      make("bdi", "name", row.name),
      make("span", "what", make("bdi", "", (row.what ?? [])[0] ?? "")),
      ...grave.map((flag) => make("span", `badge ${flag}`, flag)),
      size,
    );
    const details = make("details", `row ${row.tone}`, summary);
    row.element = details;
    const fill = () => {
      if (details.childElementCount === 1) details.append(bodyOf(row));
    };
    const isOpen = isPrinting ? isPrintedWhole(row) : row.open ?? (isAllOpen || isUrgent(row, UNFOLDED));
    if (isOpen) {
      fill();
      details.open = true;
    }
    details.addEventListener("toggle", () => {
      if (details.open) fill();
      if (!isPrinting) row.open = details.open;
    });
    return make("li", "", details);
  };

  // Lists, which grow as they are read.

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) grow(entry.target.group, CHUNK);
    }
  }, { rootMargin: "600px" });

  const grow = (group, count) => {
    const until = Math.min(group.kept.length, group.shown + count);
    const batch = document.createDocumentFragment();
    for (let index = group.shown; index < until; index += 1) batch.append(elementOf(group.kept[index]));
    group.list.append(batch);
    group.shown = until;
    const left = group.kept.length - until;
    group.more.hidden = left === 0;
    group.more.textContent = `${counted(left, "more row")} here: show ${number.format(Math.min(left, CHUNK))}`;
    watcher.unobserve(group.more);
    if (left) watcher.observe(group.more);
  };

  const fold = (group, isOpen) => {
    if (group.folder && group.folder.open !== isOpen) group.folder.open = isOpen;
    if (isOpen && group.shown === 0 && group.kept.length) grow(group, isPrinting ? Infinity : CHUNK);
  };

  const show = () => {
    let room = isPrinting ? Infinity : AT_FIRST;
    let total = 0;
    for (const group of groups) {
      group.kept = group.rows.filter(isKept);
      group.shown = 0;
      group.list.replaceChildren();
      watcher.unobserve(group.more);
      group.more.hidden = true;
      group.frame.hidden = group.kept.length === 0;
      if (group.count) group.count.textContent = number.format(group.kept.length);
      const isOpen = !group.folder || isPrinting || isAllOpen || (group.chosen ?? room > 0);
      if (group.kept.length) {
        fold(group, isOpen);
        if (isOpen) room -= Math.min(group.kept.length, CHUNK);
      }
      total += group.kept.length;
    }
    for (const section of data.sections) {
      const kept = groups.filter((group) => group.section === section).reduce((sum, group) => sum + group.kept.length, 0);
      section.element.hidden = kept === 0;
      section.count.textContent = number.format(kept);
    }
    none.hidden = total > 0;
    const isWhole = total === all.length;
    say(isWhole ? counted(total, "row") : `${number.format(total)} of ${counted(all.length, "row")}`);
  };

  // Tools.

  const status = of(make("p", "status"), { role: "status", "aria-live": "polite" });
  const say = (words) => { status.textContent = words; };
  const none = make("p", "none-found", "No row is like that. ");
  none.hidden = true;
  const cut = make("p", "cut", `Of ${counted(all.length, "row")} each is one line here, and danger is told in full.`);

  const search = of(make("input"), {
    type: "search", id: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "Search names, fields, values", "aria-keyshortcuts": "/",
  });
  let waiting = 0;
  const searched = () => {
    picked.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    show();
  };
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(searched, all.length > 2000 ? 120 : 0);
  });

  const chips = [];
  const chip = (name, sign, tone, count) => {
    const button = of(make("button", `chip ${tone}`), { type: "button", "aria-pressed": "false" });
    if (sign) button.append(of(make("span", "sign", sign), { "aria-hidden": "true" }), " ");
    button.append(name, " ", make("span", "count", number.format(count)));
    button.addEventListener("click", () => {
      if (!picked.chips.delete(name)) picked.chips.add(name);
      button.setAttribute("aria-pressed", String(picked.chips.has(name)));
      show();
    });
    chips.push(button);
    return button;
  };
  const tally = (names) => {
    const found = new Map();
    for (const row of all) {
      for (const name of names(row)) found.set(name, (found.get(name) ?? 0) + 1);
    }
    return found;
  };
  const chipRow = () => {
    const flags = tally((row) => row.flags ?? []);
    const verbs = tally((row) => [row.verb]);
    if (flags.size + verbs.size < 2) return null;
    const last = new Map(all.map((row) => [row.verb, row])); // the gravest come first, with signs of their own
    const list = of(make("div", "chips"), { role: "group", "aria-label": "Show only" });
    for (const flag of GRAVE) {
      if (flags.has(flag)) list.append(chip(flag, isGrave(flag) ? "⚠" : "", isGrave(flag) ? "danger" : "quiet", flags.get(flag)));
    }
    for (const [verb, count] of verbs) {
      if (!flags.has(verb)) list.append(chip(verb, last.get(verb).sign, last.get(verb).tone, count));
    }
    return list;
  };
  const selects = [];
  const choice = (field) => {
    const values = [...tally((row) => (row[field] ? [row[field]] : [])).entries()].sort(([a], [b]) => (a < b ? -1 : 1));
    if (!values.length || (values.length === 1 && values[0][1] === all.length)) return null;
    const select = of(make("select", "", of(make("option", "", "all"), { value: "" })), { id: `choose-${field}` });
    for (const [value, count] of values) {
      select.append(of(make("option", "", `${value} (${number.format(count)})`), { value }));
    }
    select.addEventListener("change", () => {
      picked[field] = select.value;
      show();
    });
    selects.push(select);
    return make("label", "choice", `${field} `, select);
  };
  const unfold = (isOpen) => {
    isAllOpen = isOpen;
    for (const row of all) row.open = undefined;
    if (!isOpen) for (const row of all) row.open = false;
    for (const group of groups) group.chosen = isOpen || null;
    show();
  };
  const button = (words, action) => {
    const made = of(make("button", "plain", words), { type: "button" });
    made.addEventListener("click", action);
    return made;
  };
  const clear = () => {
    search.value = "";
    picked.words = [];
    picked.chips.clear();
    chips.forEach((each) => each.setAttribute("aria-pressed", "false"));
    selects.forEach((each) => { each.value = ""; });
    picked.kind = picked.cluster = picked.owner = "";
    show();
  };
  none.append(button("Show all", clear));

  const build = () => {
    const fragment = document.createDocumentFragment();
    if (all.length) {
      const tools = of(make("div", "tools"), { role: "search", "aria-label": "Rows" });
      const box = make("label", "search", make("span", "", "Search "), search, make("kbd", "", "/"));
      const line = make("div", "line", box, choice("kind"), choice("cluster"), choice("owner"));
      const buttons = make("div", "buttons", button("Unfold all", () => unfold(true)), button("Fold all", () => unfold(false)));
      line.append(buttons);
      const chosen = chipRow();
      tools.append(line, ...(chosen ? [chosen] : []), status);
      fragment.append(tools);
      if (all.length > PRINTED) fragment.append(cut);
    } else {
      fragment.append(make("p", "nothing", data.nothing));
    }
    data.sections.forEach((section, index) => {
      section.count = make("span", "count");
      const title = of(make("h2", section.tone, `${section.title} `, section.count), { id: `section-${index}` });
      section.element = of(make("section", section.tone, title), { "aria-labelledby": title.id });
      if (section.hint) section.element.append(make("p", "hint", section.hint));
      for (const group of groups.filter((each) => each.section === section)) {
        group.list = of(make("ul", "list"), { role: "list" });
        group.more = of(make("button", "more-rows"), { type: "button" });
        group.more.group = group;
        group.more.addEventListener("click", () => grow(group, CHUNK));
        if (group.title) {
          group.count = make("span", "count");
          const heading = make("h3", "", make("bdi", "", group.title), " ", group.count);
          group.folder = make("details", "group", make("summary", "", heading), group.list, group.more);
          group.folder.addEventListener("toggle", () => {
            if (!isPrinting) group.chosen = group.folder.open;
            fold(group, group.folder.open);
          });
          group.frame = group.folder;
        } else {
          group.frame = make("div", "group", group.list, group.more);
        }
        section.element.append(group.frame);
      }
      fragment.append(section.element);
    });
    fragment.append(none);
    host.replaceChildren(fragment);
    for (const code of document.querySelectorAll("[data-copy]")) {
      code.after(" ", copyButton(code.dataset.copy, code.closest("div").querySelector("dt").textContent));
    }
    if (groups.length) show();
  };

  // Where a link leads to one row: it is shown whatever was filtered or folded.

  const reveal = () => {
    if (!location.hash.startsWith("#row=")) return;
    let key = "";
    try { key = decodeURIComponent(location.hash.slice(5)); } catch { return; }
    const row = byKey.get(key);
    if (!row) return;
    if (!row.group.kept.includes(row)) clear();
    row.open = true;
    const { group } = row;
    group.chosen = true;
    fold(group, true);
    const place = group.kept.indexOf(row);
    if (place >= group.shown) grow(group, place + 1 - group.shown);
    row.element.open = true;
    row.element.querySelector("summary").focus({ preventScroll: true });
    row.element.scrollIntoView({ block: "center" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && event.target === search) {
      search.value = "";
      searched();
    } else if (isTyping) {
      return;
    } else if (event.key === "/" && search.isConnected) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "j" || event.key === "k") {
      const stops = [...host.querySelectorAll("summary")].filter((each) => each.checkVisibility());
      const now = stops.indexOf(document.activeElement);
      const next = stops[event.key === "j" ? now + 1 : Math.max(0, now - 1)];
      if (next) {
        next.focus();
        next.scrollIntoView({ block: "nearest" });
      }
    }
  });
  const printing = (isOn) => {
    isPrinting = isOn;
    show();
  };
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  window.addEventListener("hashchange", reveal);
  build();
  reveal();
})();
