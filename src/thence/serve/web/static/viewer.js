// thence viewer: keys, theme, map frame, finding, and what goes on. Everything works without it.
(() => {
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const items = () => all(".thread .ev:not([data-kind=gap]):not([data-kind=stretch]), .srow, .runrow, .ask, .pat").filter((el) => el.checkVisibility());
  let at = null, go = false;

  // -- moving ---------------------------------------------------------------------------
  function move(el, far = false) {
    if (!el) return;
    one(".cursor")?.classList.remove("cursor");
    at = el;
    el.classList.add("cursor");
    el.scrollIntoView({ block: far ? "center" : "nearest" });
    (one("summary, .title a, a[href]:not([tabindex])", el) || el).focus({ preventScroll: true });
  }
  // Without a cursor moving starts at what is in view.
  const here = (list) => at && at.isConnected ? list.indexOf(at) : list.findIndex((el) => el.getBoundingClientRect().bottom > 110) - 0.5;
  function step(by) {
    const list = items(), now = here(list);
    move(list[Math.max(0, Math.min(list.length - 1, by > 0 ? Math.floor(now) + 1 : Math.ceil(now) - 1))]);
  }
  function jump(kinds, by) {
    const list = items(), now = here(list), link = one(`.jump a[data-kind="${kinds[0]}"]`);
    for (let i = by > 0 ? Math.floor(now) + 1 : Math.ceil(now) - 1; i >= 0 && i < list.length; i += by) {
      if (!kinds.includes(list[i].dataset.kind)) continue;
      const here = list.filter((el) => kinds.includes(el.dataset.kind));
      toast(`${here.indexOf(list[i]) + 1} of ${link ? one("b", link).textContent : here.length}`);
      return move(list[i], true);
    }
    // None on this page: the outline knows where the next one is.
    if (link && !all(".ev").some((el) => kinds.includes(el.dataset.kind))) link.click();
    else toast(by > 0 ? "No more after this" : "No more before this");
  }
  function toggle(selector) {
    const found = all(selector), open = found.some((d) => !d.open);
    found.forEach((d) => { d.open = open; });
    return open;
  }

  // -- saying what happened ---------------------------------------------------------------
  let fading = 0;
  function toast(text, undo) {
    const el = one("#toast");
    el.textContent = text;
    if (undo) {
      const button = document.createElement("button");
      button.textContent = "Undo";
      button.addEventListener("click", () => undo().catch(() => toast("Could not change this")));
      el.append(button);
    }
    el.hidden = false;
    clearTimeout(fading);
    fading = setTimeout(() => { el.hidden = true; }, undo ? 8000 : 2500);
  }
  async function copied(button, text) {
    try { await navigator.clipboard.writeText(await text); } catch { return toast("Could not copy"); }
    toast("Copied");
    if (!button || button.dataset.act !== "copy") return;
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  // -- the map: the frame follows the page, the outline follows the frame -----------------
  const byHash = (href) => { const id = href?.split("#")[1]; return id && document.getElementById(decodeURIComponent(id)); };
  function follow() {
    const frame = one(".map .view"), thread = one("#thread");
    if (!thread) return;
    const top = (el) => el.getBoundingClientRect().top + scrollY;
    if (frame) {
      const marks = all(".map a").map((a) => {
        const to = byHash(a.getAttribute("href"));
        return to && to.checkVisibility() && [top(to), +one("rect", a).getAttribute("y")];
      }).filter(Boolean);
      const last = all(".map a").at(-1);
      const end = last && byHash(last.getAttribute("href")) ? 600 : (marks.at(-1)?.[1] ?? 0) + 20;
      marks.push([top(thread) + thread.offsetHeight, Math.min(end, 600)]);
      const place = (y) => {
        if (y <= marks[0][0]) return marks[0][1];
        for (let i = 1; i < marks.length; i++) {
          const [[a, p], [b, q]] = [marks[i - 1], marks[i]];
          if (y <= b) return p + (q - p) * (y - a) / (b - a || 1);
        }
        return marks.at(-1)[1];
      };
      const from = place(scrollY + 96), to = place(scrollY + innerHeight);
      frame.setAttribute("y", from);
      frame.setAttribute("height", Math.max(6, to - from));
    }
    let current = null;
    for (const a of all(".outline ol a")) {
      const el = byHash(a.getAttribute("href"));
      a.removeAttribute("aria-current");
      if (el && el.checkVisibility() && el.getBoundingClientRect().top < innerHeight * 0.4) current = a;
    }
    current?.setAttribute("aria-current", "true");
  }
  let isDue = false;
  const soon = () => { if (!isDue) { isDue = true; requestAnimationFrame(() => { isDue = false; follow(); }); } };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("toggle", soon, true);
  follow();

  // -- what goes on -----------------------------------------------------------------------
  const beat = one(".beat"), source = document.body.dataset.live;
  const says = (text, state) => { if (beat) { beat.textContent = text; beat.dataset.state = state; } };
  // A dead server is said where nobody can miss it; the page stays readable.
  const reached = (isThere) => { const el = one("#gone"); if (el) el.hidden = isThere; if (!isThere) says("disconnected", "lost"); };
  async function asked(url, options = {}) {
    let answer;
    try { answer = await fetch(url, { headers: { "HX-Request": "true", ...options.headers }, credentials: "same-origin", ...options }); }
    catch (error) { reached(false); throw error; }
    reached(true);
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer;
  }
  // A click is lost when its row is replaced between press and release: new rows wait until then.
  let released = Promise.resolve();
  addEventListener("pointerdown", () => {
    released = new Promise((done) => { for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => setTimeout(done), { once: true }); });
  }, true);
  async function fetched(url) {
    const text = await (await asked(url)).text();
    await released;
    return new DOMParser().parseFromString(text, "text/html");
  }
  const said = new WeakMap();
  all("#thread > .ev").forEach((el) => said.set(el, el.textContent.trim()));
  async function tail(thread) {
    if (!thread.dataset.atEnd) return;
    const settled = thread.dataset.settled;
    const fresh = one("ol", await fetched(`${thread.dataset.base}/tail?after=${encodeURIComponent(settled)}`));
    // A match that was not on the page brought another thread meanwhile: this one is gone.
    if (!fresh || thread.dataset.settled !== settled || thread !== one("#thread")) return;
    const rows = [...thread.children], anchor = settled ? rows.findIndex((el) => el.id === settled) : -1;
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 160;
    const old = new Map(rows.slice(anchor + 1).map((el) => [el.id || el.dataset.kind, el]));
    let added = 0, changed = 0;
    for (const el of [...fresh.children]) {
      const name = el.id || el.dataset.kind, before = old.get(name), text = el.textContent.trim();
      old.delete(name);
      // A row that says the same stays as it is, with what was opened and fetched in it.
      const isSame = before && before.dataset.kind === el.dataset.kind && (said.get(before) === text || before.classList.contains("hit"));
      if (isSame) { thread.append(before); continue; }
      const node = document.importNode(el, true);
      changed += 1;
      added += before ? 0 : 1;
      said.set(node, text);
      thread.append(node);
      window.htmx?.process(node);
      if (before && one("details[open]", before)) all("details", node).forEach((d) => { d.open = true; });
      before?.remove();
    }
    old.forEach((el) => el.remove());
    thread.dataset.settled = fresh.dataset.settled;
    // The page follows the end only when there is more of it, and for who reads there.
    if (atEnd && added) scrollTo({ top: document.body.scrollHeight });
    if (changed) overview(thread);
    if (marks) paint(one(".ev.hit", thread), isResultShown);
    soon();
  }
  // What stands over and beside the rows grows with them.
  let drawing = false, again = false;
  async function overview(thread) {
    if (drawing) { again = true; return; }
    drawing = true;
    try {
      const fresh = await fetched(`${thread.dataset.base}?end=1&whole=1`);
      for (const part of ["#s-facts", "#s-title", "#s-rows", ".map", ".outline", ".s-strip"]) {
        const old = one(part), made = one(part, fresh);
        if (old && made) old.replaceWith(document.importNode(made, true));
        else if (made && part === ".map") one(".s-main").after(document.importNode(made, true));
        else if (made && part === ".outline") one(".s-body").append(document.importNode(made, true));
      }
    } catch { /* the next row tries again */ }
    soon();
    setTimeout(() => { drawing = false; if (again) { again = false; overview(thread); } }, 1000);
  }
  // Who has read on to the end of a long session sees it go on from there.
  addEventListener("htmx:afterSettle", () => {
    const thread = one("#thread"), last = thread?.lastElementChild;
    if (!last || thread.dataset.atEnd || last.classList.contains("more-rows")) return soon();
    const rows = all(":scope > .ev[id]", thread);
    thread.dataset.atEnd = "1";
    thread.dataset.settled = rows.at(-2)?.id ?? "";
    rows.slice(-2).forEach((el) => said.set(el, el.textContent.trim()));
    refresh();
  });
  const keyOf = (el) => el && (el.id || one(".title a, a[href]", el)?.getAttribute("href"));
  async function page() {
    const part = one("#fresh") || one("#found");
    if (!part || one(":popover-open") || (document.activeElement?.matches("input, select") && part.contains(document.activeElement))) return;
    if (typing || one("#drop:not([hidden])")) return;
    const fresh = one(`#${part.id}`, await fetched(location.href));
    if (!fresh) return;
    replaced(part, document.importNode(fresh, true));
    if (fresh.dataset.sessions !== part.dataset.sessions) renewYear();
  }
  // The calendar follows new sessions, at most every two seconds while many are imported.
  let yearDue = 0;
  function renewYear() {
    yearDue ||= setTimeout(() => { yearDue = 0; window.htmx?.trigger("#year", "more-sessions"); }, 2000);
  }
  // New rows leave the reader where he is: the cursor, the focus and what was opened stay.
  function replaced(part, node) {
    const cursor = part.contains(at) ? keyOf(at) : null, focus = document.activeElement;
    const focused = part.contains(focus) ? focus.getAttribute("href") : null, field = part.contains(focus) ? focus.name : null;
    part.replaceWith(node);
    window.htmx?.process(node);
    if (cursor) {
      at = all(".srow, .runrow, .ask, .pat", node).find((el) => keyOf(el) === cursor) ?? null;
      at?.classList.add("cursor");
    }
    if (field) one(`[name="${field}"]`, node)?.focus({ preventScroll: true });
    if (focused) all("a[href]", node).find((el) => el.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }
  let due = 0, busy = false;
  async function refresh() {
    clearTimeout(due);
    due = setTimeout(async () => {
      if (busy) return refresh();
      busy = true;
      try { const thread = one("#thread"); await (thread ? tail(thread) : page()); says("live", "live"); }
      catch { says("disconnected", "lost"); }
      finally { busy = false; }
    }, 80);
  }
  // A browser holds few streams to one server: only pages in view keep theirs.
  let stream = null;
  function listen() {
    if (!source || !window.EventSource || document.hidden || stream) return;
    stream = new EventSource(source);
    stream.onopen = () => { says("live", "live"); reached(true); };
    stream.onerror = async () => {
      says("disconnected", "lost");
      if (stream?.readyState !== EventSource.CLOSED) return; // else the browser tries again
      hush();
      setTimeout(listen, 5000);
      const answer = await fetch("/", { method: "HEAD" }).catch(() => null);
      reached(answer !== null);
      if (answer?.status === 401) says("signed out: run thence serve", "lost");
    };
    for (const kind of ["event", "rewound", "agent", "ready", "pending", "changed", "standing"]) stream.addEventListener(kind, refresh);
  }
  function hush() { stream?.close(); stream = null; }
  document.addEventListener("visibilitychange", () => document.hidden ? hush() : listen());
  addEventListener("pagehide", hush);
  addEventListener("pageshow", listen);
  listen();

  // -- finding in a session -----------------------------------------------------------------
  // Words are marked by the browser's own highlights: the rows stay as they were sent.
  // What is a word is decided by the server, which sends the expression (memory/highlighting).
  let hits = null, marks = "";
  const shapes = new Map();
  // Words end where a box ends: the text of a cell does not run on into the next one.
  function boxOf(el) {
    for (; el.parentElement; el = el.parentElement) {
      const key = `${el.localName} ${el.className}`;
      if (!shapes.has(key)) shapes.set(key, getComputedStyle(el).display);
      if (!/^(inline|contents)$/.test(shapes.get(key))) break;
    }
    return el;
  }
  function ranges(root) {
    if (!marks || !root) return [];
    const find = new RegExp(marks, "giu");
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, {
      acceptNode: (node) => node.parentElement.closest(".acts, title, button") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
    });
    const nodes = [], starts = [];
    let text = "", box = null;
    while (walk.nextNode()) {
      const node = walk.currentNode, own = boxOf(node.parentElement);
      if (own !== box) { text += "\n"; box = own; }
      nodes.push(node);
      starts.push(text.length);
      text += node.data;
    }
    const place = (at, isEnd) => {
      let low = 0, high = nodes.length - 1;
      while (low < high) { const mid = (low + high + 1) >> 1; if (isEnd ? starts[mid] < at : starts[mid] <= at) low = mid; else high = mid - 1; }
      return [nodes[low], at - starts[low]];
    };
    return [...text.matchAll(find)].slice(0, 2000).map((match) => {
      const range = new Range();
      range.setStart(...place(match.index, false));
      range.setEnd(...place(match.index + match[0].length, true));
      return range;
    });
  }
  function paint(row, isResult = false) {
    if (!window.Highlight) return null;
    const list = ranges(one("#thread"));
    CSS.highlights.set("found", new Highlight(...list));
    const seen = row ? list.filter((range) => row.contains(range.startContainer) && range.startContainer.parentElement.checkVisibility()) : [];
    const within = (range, selector) => range.startContainer.parentElement.closest(selector);
    const best = (isResult && seen.find((range) => within(range, ".out"))) || (seen.find((range) => !within(range, "summary")) ?? seen[0]);
    CSS.highlights.set("current", new Highlight(...(best ? [best] : [])));
    return best ?? null;
  }
  function center(range) {
    const rect = () => range.getBoundingClientRect();
    for (let el = range.startContainer.parentElement; el && el !== document.body; el = el.parentElement) {
      const style = getComputedStyle(el), box = el.getBoundingClientRect();
      if (/auto|scroll/.test(style.overflowY) && el.scrollHeight > el.clientHeight) el.scrollTop += rect().top - box.top - el.clientHeight / 2;
      if (/auto|scroll/.test(style.overflowX) && (rect().right > box.right || rect().left < box.left)) el.scrollLeft += rect().left - box.left - el.clientWidth / 2;
    }
    if (rect().top < 120 || rect().bottom > innerHeight - 60) scrollBy(0, rect().top - innerHeight * 0.4);
  }
  function reveal(row, isOwn) {
    for (let el = row.parentElement; el; el = el.parentElement) if (el.matches("details")) el.open = true;
    if (isOwn) all(":scope > .body > details, :scope > .body > details > .in > details.task", row).forEach((d) => { d.open = true; });
  }
  let isResultShown = false; // whether the match that is shown lies in what a call returned
  // A row that was shown before its words were fetched: it is shown again when they are there.
  let unseen = null;
  addEventListener("htmx:afterSettle", (ev) => { if (unseen?.row.contains(ev.target)) arrive(unseen.row, unseen.isResult); });
  const waited = (ms) => new Promise((done) => setTimeout(done, ms));
  // Shows a row that is on the page; false when the words are not to be seen in it. Words may take
  // a while to come: who was sent elsewhere meanwhile is not taken back.
  let arrivals = 0;
  async function arrive(row, isResult = false, isQuiet = false) {
    const number = ++arrivals;
    all(".ev.hit").forEach((el) => { if (el !== row) el.classList.remove("hit"); });
    row.classList.add("hit");
    reveal(row, !one(":scope > .aside", row));
    for (let i = 0; i < 40 && one("details[open] > .in > .unfetched", row); i++) await waited(50);
    if (number !== arrivals) return true;
    one(".cursor")?.classList.remove("cursor");
    at = row;
    isResultShown = isResult;
    const range = paint(row, isResult);
    unseen = range || !marks ? null : { row, isResult };
    if (!isQuiet) {
      const top = row.getBoundingClientRect().top;
      if (top < 110 || top > innerHeight * 0.7) row.scrollIntoView({ block: "start" });
      if (range) center(range);
    }
    return Boolean(range) || !marks;
  }
  const finder = one("#find"), count = one("#n-of");
  const urlOf = (event, text) => `${one("#thread").dataset.base}?at=${event}${text ? `&q=${encodeURIComponent(text)}` : ""}#${event}`;
  async function look() {
    const text = finder.value.trim(), base = one("#thread").dataset.base;
    if (!text) { hits = null; marks = ""; paint(null); count.textContent = ""; one(".finder .steps").hidden = true; return; }
    const answer = await (await asked(`${base}/find?q=${encodeURIComponent(text)}`)).json();
    if (finder.value.trim() !== text || hits?.text === text) return; // asked twice: the place in the matches stays
    hits = { text, list: answer.matches, at: -1 };
    marks = answer.marks;
    paint(null);
    count.textContent = hits.list.length ? `${hits.list.length}` : "no match";
    one(".finder .steps").hidden = !hits.list.length;
  }
  let steps = 0; // that are under way: each may fetch what its match is in
  async function stepHit(by) {
    if (!finder) return;
    steps += 1;
    one(".finder").ariaBusy = "true";
    try { await showNext(by); } finally { steps -= 1; if (!steps) one(".finder").ariaBusy = "false"; }
  }
  async function showNext(by) {
    if (!hits && finder.value.trim()) {
      const shown = one("#thread").dataset.target;
      await look();
      if (hits) hits.at = hits.list.findIndex(([event]) => event === shown);
    }
    if (!hits?.list.length) return toast(finder.value.trim() ? "No match" : "Press f and type what to find");
    const number = hits.list.length;
    hits.at = hits.at < 0 ? nearest(by) : (hits.at + by + number) % number;
    const [event, name] = hits.list[hits.at];
    count.textContent = `${hits.at + 1} of ${number}`;
    history.replaceState(null, "", urlOf(event, hits.text));
    const row = document.getElementById(name);
    if (row && await arrive(row, event !== name)) return;
    const fresh = one("#thread", await fetched(`${urlOf(event, hits.text).split("#")[0]}&whole=1`));
    if (!fresh || hits?.list[hits.at]?.[0] !== event) return; // the next match was asked for meanwhile
    const node = document.importNode(fresh, true);
    one("#thread").replaceWith(node);
    window.htmx?.process(node);
    all(":scope > .ev", node).forEach((el) => said.set(el, el.textContent.trim()));
    const target = one(".ev.hit", node);
    if (target) await arrive(target, event !== name);
    soon();
  }
  // The first match is the one after what is in view, as in any editor.
  function nearest(by) {
    const shown = new Map(hits.list.map(([, row], index) => [row, index]));
    for (const el of items()) if (el.getBoundingClientRect().bottom > 110 && shown.has(el.id)) return shown.get(el.id);
    return by > 0 ? 0 : hits.list.length - 1;
  }
  if (finder) {
    let later = 0;
    finder.addEventListener("focus", () => asked(`${one("#thread").dataset.base}/find`).catch(() => {}), { once: true });
    finder.addEventListener("input", () => { clearTimeout(later); later = setTimeout(() => look().catch(() => toast("Could not search")), 150); });
    one(".finder").addEventListener("submit", async (ev) => {
      ev.preventDefault();
      clearTimeout(later);
      if (hits?.text !== finder.value.trim()) await look();
      stepHit(ev.submitter || !shifted ? 1 : -1);
    });
    let shifted = false;
    finder.addEventListener("keydown", (ev) => {
      shifted = ev.shiftKey;
      if (ev.key === "Enter" && ev.shiftKey) { ev.preventDefault(); stepHit(-1); }
      if (ev.key === "Escape") { ev.preventDefault(); finder.value = ""; look(); history.replaceState(null, "", location.pathname); finder.blur(); }
    });
  }
  // Who comes by a link to an event sees it, whatever was folded over it.
  const opened = one("#thread[data-target]");
  if (opened) {
    marks = opened.dataset.marks || "";
    const row = one(".ev.hit", opened), isBack = performance.getEntriesByType("navigation")[0]?.type === "back_forward";
    if (row) {
      const isResult = row.id !== opened.dataset.target;
      arrive(row, isResult, isBack);
      if (!isBack) addEventListener("load", () => requestAnimationFrame(() => arrive(row, isResult)));
    }
  }

  // -- searching everywhere -----------------------------------------------------------------
  const box = one("#q"), drop = one("#drop"), isList = document.body.dataset.page === "sessions" && one("#found");
  let typing = false, pushed = false;
  // What the address does not say yet is being typed: the server says what it means, and sends there.
  const listUrl = () => {
    const fields = new URLSearchParams([...new FormData(box.form)].filter(([, value]) => value));
    if (box.value && box.value !== box.defaultValue) fields.set("typing", "1");
    return `/sessions${fields.size ? `?${fields}` : ""}`;
  };
  let askedLists = 0, isListing = false, wish = "";
  async function relist(url) {
    const number = ++askedLists;
    let fresh;
    isListing = true;
    try {
      fresh = await fetched(url);
      if (number !== askedLists) return null; // a later question is on its way: this answer would undo it
      for (const id of ["lede", "controls", "found"]) {
        const old = one(`#${id}`), made = one(`#${id}`, fresh);
        if (old && made) replaced(old, document.importNode(made, true));
      }
    } finally {
      if (number === askedLists) isListing = false;
    }
    const link = wish ? all("#controls a").find((el) => el.textContent === wish) : null;
    wish = "";
    link?.click();
    return fresh;
  }
  // Links of the controls hold the filters of the list that is shown: they wait for one on its way.
  document.addEventListener("click", (ev) => {
    const link = ev.target.closest?.("#controls a");
    if (!link || !isListing || ev.ctrlKey || ev.metaKey || ev.shiftKey) return;
    ev.preventDefault();
    wish = link.textContent;
  });
  async function typed() {
    const url = listUrl();
    if (location.pathname + location.search !== url) history[pushed ? "replaceState" : "pushState"](null, "", url);
    pushed = true;
    const fresh = await relist(url);
    if (fresh) {
      history.replaceState(null, "", one("#found", fresh).dataset.href);
      typing = false;
    }
    return fresh;
  }
  async function suggest() {
    const text = box.value;
    const fresh = one("#drop", await fetched(`/suggest?q=${encodeURIComponent(text)}`));
    typing = false;
    if (!fresh || box.value !== text || document.activeElement !== box) return;
    drop.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    drop.hidden = !drop.firstElementChild;
  }
  const shut = () => { if (drop) drop.hidden = true; };
  if (box && drop) {
    let later = 0;
    const soonTyped = () => {
      typing = true;
      clearTimeout(later);
      later = setTimeout(() => (isList ? typed() : suggest()).catch(() => { typing = false; toast("Could not search"); }), 120);
    };
    box.addEventListener("input", soonTyped);
    box.addEventListener("focus", () => { if (!isList) soonTyped(); });
    box.addEventListener("keydown", (ev) => {
      if (ev.key === "Escape") {
        ev.preventDefault();
        const had = box.value;
        box.value = "";
        shut();
        if (isList && had) soonTyped(); else box.blur();
      }
      if (ev.key === "ArrowDown" && !drop.hidden) { ev.preventDefault(); one("a", drop)?.focus(); }
    });
    drop.addEventListener("keydown", (ev) => {
      const links = all("a", drop), index = links.indexOf(document.activeElement);
      if (ev.key === "ArrowDown") { ev.preventDefault(); links[Math.min(index + 1, links.length - 1)]?.focus(); }
      if (ev.key === "ArrowUp") { ev.preventDefault(); (links[index - 1] ?? box).focus(); }
      if (ev.key === "Escape") { ev.preventDefault(); shut(); box.focus(); shut(); }
      ev.stopPropagation();
    });
    document.addEventListener("focusin", (ev) => { if (!box.form.contains(ev.target)) shut(); });
    document.addEventListener("pointerdown", (ev) => { if (!box.form.contains(ev.target)) shut(); });
    if (isList) {
      box.form.addEventListener("submit", (ev) => {
        ev.preventDefault();
        clearTimeout(later);
        typed().then((fresh) => {
          pushed = false;
          if (fresh) box.value = box.defaultValue = one("#q", fresh).defaultValue;
        }).catch(() => toast("Could not search"));
      });
      addEventListener("popstate", () => {
        pushed = false;
        box.value = box.defaultValue = new URLSearchParams(location.search).get("q") ?? "";
        relist(location.href).catch(() => location.reload());
      });
      // A filter is a field of the same form: it keeps the words, and they keep it.
      document.addEventListener("change", (ev) => { if (ev.target.closest("#controls")) box.form.requestSubmit(); });
    } else box.form.addEventListener("submit", (ev) => { ev.preventDefault(); location.href = listUrl(); });
  }
  for (const kind of ["htmx:sendError", "htmx:responseError"]) document.addEventListener(kind, () => { if (kind === "htmx:sendError") reached(false); toast("Could not load this"); });

  // -- keys -----------------------------------------------------------------------------
  const press = (name) => one(`[data-act="${name}"]`)?.click();
  const row = (name) => { const button = at && one(`:scope > .acts [data-act="${name}"]`, at); if (button) button.click(); };
  const keys = {
    "/": () => { box.focus(); box.select(); },
    "?": () => one("#help").showModal(),
    j: () => step(1), k: () => step(-1),
    o: () => { const d = at && (at.matches("details") ? at : one("details", at)); if (d) d.open = !d.open; else one(".title a, a[href]", at ?? one("main"))?.click(); },
    Enter: () => { if (document.activeElement === document.body) keys.o(); },
    b: () => press("branches"), t: () => press("tools"),
    f: () => { if (finder) { finder.focus(); finder.select(); } },
    n: () => stepHit(1), N: () => stepHit(-1),
    y: () => row("copy-row"), v: () => row("raw"),
    e: () => jump(["error", "interrupted", "stop"], 1), E: () => jump(["error", "interrupted", "stop"], -1),
    c: () => jump(["correction"], 1), C: () => jump(["correction"], -1),
    x: () => jump(["test"], 1), X: () => jump(["test"], -1),
    r: () => one("[popovertarget=resume]")?.click(),
    "[": () => one("a[rel=prev]")?.click(), "]": () => one("a[rel=next]")?.click(),
    G: () => { const link = one("#s-rows a[data-end]"); if (link) link.click(); else scrollTo({ top: document.body.scrollHeight }); },
    g: () => { go = true; },
  };
  addEventListener("keydown", (ev) => {
    if ((ev.ctrlKey || ev.metaKey) && ev.key.toLowerCase() === "k" && box) { ev.preventDefault(); box.focus(); box.select(); return; }
    if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
    if (ev.target.matches("input, select, textarea")) { if (ev.key === "Escape") ev.target.blur(); return; }
    const to = go && { n: "/", s: "/sessions", c: "/costs", p: "/patterns", t: "/store", r: "/projects" }[ev.key];
    const top = go && ev.key === "g";
    go = false;
    if (to) { location.href = to; return; }
    if (top) { scrollTo({ top: 0 }); return; }
    const act = keys[ev.key];
    if (act) { if (ev.key !== "Enter") ev.preventDefault(); act(); }
  });
  // Shows the text of a row as it was written, and back.
  async function raw(button) {
    const body = one(":scope > .body", button.closest(".ev")), old = one(":scope > .raw-text", body);
    const isRaw = button.getAttribute("aria-pressed") !== "true";
    if (isRaw && !old) {
      const text = await (await asked(button.dataset.text)).text(), pre = document.createElement("pre");
      pre.className = "out raw-text";
      pre.tabIndex = 0;
      pre.textContent = text;
      body.append(pre);
    }
    button.setAttribute("aria-pressed", isRaw);
    body.classList.toggle("is-raw", isRaw);
  }
  const sent = (url, data) => asked(url, { method: "POST", body: JSON.stringify(data), headers: { "Content-Type": "application/json", "HX-Request": "true" } });
  async function dismiss(button) {
    const todo = button.dataset.todo, item = button.closest("li"), after = item.nextElementSibling, list = item.parentElement;
    await sent("/todos/dismissed", { todo, dismissed: true });
    item.remove();
    if (busy || !list.isConnected) refresh(); // a page that was asked for before still has it
    toast("Dismissed", async () => {
      await sent("/todos/dismissed", { todo, dismissed: false });
      if (list.isConnected) list.insertBefore(item, after?.isConnected ? after : null); else refresh();
      toast("Shown again");
    });
  }
  async function pin(button) {
    const pinned = button.getAttribute("aria-pressed") !== "true";
    await sent(button.dataset.url, { pinned });
    button.setAttribute("aria-pressed", pinned);
    button.textContent = pinned ? "Pinned" : "Pin";
    toast(pinned ? "Pinned: storage limits do not remove it" : "Unpinned", () => pin(button));
  }
  // Names, tags and notes: what was there before comes back with Undo.
  async function label(pop, change, done) {
    const old = { name: pop.dataset.name, tags: pop.dataset.tags.split(" ").filter(Boolean) };
    const now = await (await sent(`${pop.dataset.url}/label`, change)).json();
    pop.dataset.name = one("#label-name").value = now.name ?? "";
    pop.dataset.tags = one("#label-tags").value = now.tags.join(" ");
    one("#s-title").textContent = document.title = now.title;
    const tags = one("#s-tags");
    tags.hidden = !now.tags.length;
    tags.replaceChildren(...now.tags.flatMap((tag) => {
      const link = document.createElement("a");
      link.href = `/sessions?q=${encodeURIComponent(`tag:${tag}`)}`;
      link.textContent = `#${tag}`;
      return [link, " "];
    }));
    const undo = Object.fromEntries(Object.keys(change).map((key) => [key, old[key]]));
    toast(done, () => label(pop, undo, "Changed back"));
  }
  async function note(pop, text) {
    const added = await (await sent(`${pop.dataset.url}/notes`, { text })).json();
    const line = document.createElement("p"), said = document.createElement("span"), head = document.createElement("b");
    line.className = "s-note";
    head.textContent = `${added.head}: `;
    said.append(head, added.text);
    line.append(said);
    one("#s-notes").append(line);
    one("#label-note").value = "";
    toast("Note added", async () => {
      await sent(`${pop.dataset.url}/notes/removed`, { uuid: added.uuid });
      line.remove();
      one("#label-note").value = text;
      toast("Note removed");
    });
  }
  addEventListener("submit", (ev) => {
    const form = ev.target.closest("form[data-write]");
    if (!form) return;
    ev.preventDefault();
    const pop = form.closest("#label"), text = form.elements.text.value.trim();
    const act = {
      name: () => label(pop, { name: text }, text ? "Renamed" : "Name removed"),
      tags: () => label(pop, { tags: text.replaceAll("#", "").split(/[\s,]+/).filter(Boolean) }, "Tags saved"),
      note: () => note(pop, text),
    }[form.dataset.write];
    act().then(() => pop.hidePopover?.()).catch(() => toast("Could not change this"));
  });
  addEventListener("click", (ev) => {
    const to = ev.target.closest("[data-step]");
    if (to && finder) { ev.preventDefault(); stepHit(+to.dataset.step).catch(() => toast("Could not load this")); return; }
    const b = ev.target.closest("[data-act]");
    if (!b) return;
    if (b.dataset.act === "theme") {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private window */ }
    }
    const fold = { branches: ".branch", tools: ".call, .test", thinking: ".think" }[b.dataset.act];
    if (fold && !one(fold)) toast(one(".bound:not([open])") ? "None here; they may be inside a compacted part" : "None in this session");
    else if (fold) { const open = toggle(fold); b.setAttribute("aria-pressed", open); b.classList.toggle("on", open); }
    if (b.dataset.act === "copy") copied(b, b.previousElementSibling.textContent);
    if (b.dataset.act === "copy-row") copied(b, asked(b.dataset.text).then((answer) => answer.text()));
    if (b.dataset.act === "copy-code") copied(b, b.previousElementSibling.textContent);
    if (b.dataset.act === "dismiss") dismiss(b).catch(() => toast("Could not change this"));
    if (b.dataset.act === "pin") pin(b).catch(() => toast("Could not change this"));
    if (b.dataset.act === "raw") raw(b).catch(() => toast("Could not load this"));
  });
  // A block of code under the pointer offers to be copied.
  const copier = document.createElement("button");
  copier.type = "button";
  copier.className = "btn copier";
  copier.dataset.act = "copy-code";
  copier.textContent = "Copy";
  copier.tabIndex = -1;
  document.addEventListener("pointerover", (ev) => {
    const pre = ev.target.closest?.("#thread pre, .say pre");
    if (pre && pre.nextElementSibling !== copier) pre.after(copier);
  });
})();
