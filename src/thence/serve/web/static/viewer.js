// thence viewer: keys, theme, map frame, and what goes on. Everything works without it.
(() => {
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const items = () => all(".thread .ev:not([data-kind=gap]):not([data-kind=stretch]), .srow, .runrow, .ask, .pat").filter((el) => el.checkVisibility());
  let at = null, go = false;

  // -- moving ---------------------------------------------------------------------------
  function move(el) {
    if (!el) return;
    one(".cursor")?.classList.remove("cursor");
    at = el;
    el.classList.add("cursor");
    el.scrollIntoView({ block: "nearest" });
    (one("summary, a[href]", el) || el).focus({ preventScroll: true });
  }
  // Without a cursor moving starts at what is in view.
  const here = (list) => at && at.isConnected ? list.indexOf(at) : list.findIndex((el) => el.getBoundingClientRect().bottom > 110) - 0.5;
  function step(by) {
    const list = items(), now = here(list);
    move(list[Math.max(0, Math.min(list.length - 1, by > 0 ? Math.floor(now) + 1 : Math.ceil(now) - 1))]);
  }
  function jump(kinds, by) {
    const list = items(), now = here(list);
    for (let i = by > 0 ? Math.floor(now) + 1 : Math.ceil(now) - 1; i >= 0 && i < list.length; i += by) if (kinds.includes(list[i].dataset.kind)) return move(list[i]);
    // None on this page: the outline knows where the next one is.
    const link = one(`.jump a[data-kind="${kinds[0]}"]`);
    if (link && !all(".ev").some((el) => kinds.includes(el.dataset.kind))) link.click();
  }
  function toggle(selector) {
    const found = all(selector), open = found.some((d) => !d.open);
    found.forEach((d) => { d.open = open; });
    return open;
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
  let asked = false;
  const soon = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; follow(); }); } };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("toggle", soon, true);
  follow();

  // -- what goes on -----------------------------------------------------------------------
  const beat = one(".beat"), source = document.body.dataset.live;
  const says = (text, state) => { if (beat) { beat.textContent = text; beat.dataset.state = state; } };
  async function fetched(url) {
    const answer = await fetch(url, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }
  const said = new WeakMap();
  all("#thread > .ev").forEach((el) => said.set(el, el.textContent.trim()));
  async function tail(thread) {
    if (!thread.dataset.atEnd) return;
    const settled = thread.dataset.settled;
    const fresh = one("ol", await fetched(`${thread.dataset.base}/tail?after=${encodeURIComponent(settled)}`));
    if (!fresh || thread.dataset.settled !== settled) return;
    const rows = [...thread.children], anchor = settled ? rows.findIndex((el) => el.id === settled) : -1;
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 160;
    const old = new Map(rows.slice(anchor + 1).map((el) => [el.id || el.dataset.kind, el]));
    for (const el of [...fresh.children]) {
      const name = el.id || el.dataset.kind, before = old.get(name), text = el.textContent.trim();
      old.delete(name);
      // A row that says the same stays as it is, with what was opened and fetched in it.
      if (before && before.dataset.kind === el.dataset.kind && said.get(before) === text) { thread.append(before); continue; }
      const node = document.importNode(el, true);
      said.set(node, text);
      thread.append(node);
      window.htmx?.process(node);
      if (before && one("details[open]", before)) all("details", node).forEach((d) => { d.open = true; });
      before?.remove();
    }
    old.forEach((el) => el.remove());
    thread.dataset.settled = fresh.dataset.settled;
    if (atEnd) scrollTo({ top: document.body.scrollHeight });
    soon();
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
  async function page() {
    const part = one("#fresh") || one("#found");
    if (!part || one(":popover-open") || (document.activeElement?.matches("input") && part.id === "found")) return;
    const fresh = one(`#${part.id}`, await fetched(location.href));
    if (!fresh) return;
    part.replaceWith(document.importNode(fresh, true));
    window.htmx?.process(one(`#${part.id}`));
  }
  let due = 0, busy = false;
  async function refresh() {
    clearTimeout(due);
    due = setTimeout(async () => {
      if (busy) return refresh();
      busy = true;
      try { const thread = one("#thread"); await (thread ? tail(thread) : page()); says("live", "live"); }
      catch { says("lost, trying again", "lost"); }
      finally { busy = false; }
    }, 80);
  }
  // A browser holds few streams to one server: only pages in view keep theirs.
  let stream = null;
  function listen() {
    if (!source || !window.EventSource || document.hidden || stream) return;
    stream = new EventSource(source);
    stream.onopen = () => says("live", "live");
    stream.onerror = async () => {
      says("lost, trying again", "lost");
      if (stream?.readyState !== EventSource.CLOSED) return; // else the browser tries again
      hush();
      setTimeout(listen, 5000);
      const answer = await fetch("/", { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) says("signed out: run thence serve", "lost");
    };
    for (const kind of ["event", "rewound", "agent", "ready", "pending", "changed", "standing"]) stream.addEventListener(kind, refresh);
  }
  function hush() { stream?.close(); stream = null; }
  document.addEventListener("visibilitychange", () => document.hidden ? hush() : listen());
  addEventListener("pagehide", hush);
  addEventListener("pageshow", listen);
  listen();

  // -- keys -----------------------------------------------------------------------------
  const press = (name) => one(`[data-act="${name}"]`)?.click();
  const keys = {
    "/": () => { const field = one(".filters input[type=search]") || one("#q"); field.focus(); field.select(); },
    "?": () => one("#help").showModal(),
    j: () => step(1), k: () => step(-1),
    o: () => { const d = at && (at.matches("details") ? at : one("details", at)); if (d) d.open = !d.open; else one("a[href]", at ?? document)?.click(); },
    Enter: () => { if (document.activeElement === document.body) keys.o(); },
    b: () => press("branches"), t: () => press("tools"),
    e: () => jump(["error", "interrupted", "stop"], 1), E: () => jump(["error", "interrupted", "stop"], -1),
    c: () => jump(["correction"], 1), C: () => jump(["correction"], -1),
    x: () => jump(["test"], 1), X: () => jump(["test"], -1),
    r: () => one("#resume")?.togglePopover(),
    g: () => { go = true; },
  };
  addEventListener("keydown", (ev) => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
    if (ev.target.matches("input, select, textarea")) { if (ev.key === "Escape") ev.target.blur(); return; }
    const to = go && { n: "/", s: "/sessions", c: "/costs", p: "/patterns", t: "/store" }[ev.key];
    go = false;
    if (to) { location.href = to; return; }
    const act = keys[ev.key];
    if (act) { if (ev.key !== "Enter") ev.preventDefault(); act(); }
  });
  addEventListener("click", (ev) => {
    const b = ev.target.closest("[data-act]");
    if (!b) return;
    if (b.dataset.act === "theme") {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private window */ }
    }
    const fold = { branches: ".branch", tools: ".call, .test", thinking: ".think" }[b.dataset.act];
    if (fold) { const open = toggle(fold); b.setAttribute("aria-pressed", open); b.classList.toggle("on", open); }
    if (b.dataset.act === "copy") navigator.clipboard?.writeText(b.previousElementSibling.textContent);
  });
})();
