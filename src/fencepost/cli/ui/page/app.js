// Which view is shown, asking for it again and again, and the questions before something is changed.
"use strict";

const TABS = [["overview", "Overview"], ["transactions", "Transactions"], ["topics", "Topics"], ["groups", "Groups"], ["sinks", "Spark sinks"], ["disks", "Disks"], ["access", "Access"]];
const WITHIN = { topic: "topics", messages: "topics", message: "topics", settings: "topics", transaction: "transactions", group: "groups", sink: "sinks" };
const STILL = new Set(["messages", "message", "access", "settings"]);
const element = (id) => document.getElementById(id);

let about = { clusters: [], every_s: 2 };
let introduced = false;
let token = sessionStorage.getItem("token") || ""; // for changes; the program prints it, behind the page's address
let timer = 0;
let asked = 0; // the number of the last question: answers to earlier ones are too late
let shown = ""; // the address that is on the page
let shownCluster = null; // the cluster whose data is on the page
let questions = 0; // the number of the last question before a change: an answer to an earlier one opens nothing

const several = () => about.clusters.length > 1;

function address(view, query) {
  const where = several() && view !== "clusters" ? { cluster: cluster() } : {};
  const said = new URLSearchParams(Object.entries({ ...where, ...query }).filter(([, value]) => value !== "" && value !== undefined));
  return `#/${view}${said.size ? `?${said}` : ""}`;
}

// Of `#token=TOKEN`, which the server never sees, perhaps with a view behind it; it does not stay in the address.
function takeToken() {
  const found = location.hash.match(/^#token=([\w-]+)(\/.*)?$/);
  if (!found) return;
  token = found[1];
  sessionStorage.setItem("token", token);
  introduced = false;
  history.replaceState(null, "", `#${found[2] || "/"}`);
}

function route() {
  const [view, text] = location.hash.replace(/^#\//, "").split("?", 2);
  const { cluster, ...query } = Object.fromEntries(new URLSearchParams(text || ""));
  return { view: Object.hasOwn(VIEWS, view) ? view : several() && !cluster ? "clusters" : "overview", query, cluster };
}

// The name of the cluster that the address means; null if there is one without a name.
const cluster = () => (several() ? route().cluster ?? about.clusters[0].name : about.clusters[0]?.name || null);

// A path of the server about a cluster.
function pathTo(path, where, query) {
  const said = new URLSearchParams(query || {});
  if (where !== null) said.set("cluster", where);
  return `${path}${said.size ? `?${said}` : ""}`;
}

// --- looking ---

async function ask(path, body) {
  const response = await fetch(path, body && {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Fencepost-Token": token },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(text.trim() || `status ${response.status}`);
  }
  if (!response.ok) throw Object.assign(new Error(answer.error), { told: true });
  return answer;
}

async function look() {
  clearTimeout(timer);
  takeToken();
  const mine = ++asked;
  let here = route();
  try {
    if (!introduced) await introduce();
    if (mine !== asked) return;
    here = route();
    choose(here);
    // A search may take seconds. The view before it stays on the page until then, marked as not current.
    if (STILL.has(here.view) || address(here.view, here.query) !== shown) wait();
    const answer = await ask(here.view === "clusters" ? "/api/clusters" : pathTo(`/api/${here.view}`, cluster(), here.query));
    if (mine === asked) here.view === "clusters" ? showClusters(here, answer) : show(here, answer);
  } catch (error) {
    if (mine === asked) failed(here, error);
  }
  if (mine === asked) element("main").removeAttribute("aria-busy");
  // A search reads the topic: it runs when somebody asks for it, and not again and again.
  if (mine === asked && !document.hidden && !STILL.has(here.view)) timer = setTimeout(look, about.every_s * 1000);
}

function wait() {
  element("main").setAttribute("aria-busy", "true");
  pulse(false, "looking …");
}

async function introduce() {
  about = await ask("/api/about");
  introduced = true;
}

// The facts about the cluster of the address, and what this tab may do to it.
function aboutHere() {
  const found = about.clusters.find((each) => (each.name || null) === cluster()) || { servers: "", actions: false };
  return { ...about, ...found, actions: found.actions && token !== "", locked: found.actions && token === "" };
}

// Shows which cluster the page is about. Nothing of another cluster stays on the page, and no question about it.
function choose(here) {
  const where = here.view === "clusters" ? "" : cluster();
  if (shownCluster !== null && shownCluster !== where) {
    questions++;
    if (dialog().open) dialog().close();
    element("main").replaceChildren(h("p", { class: "quiet" }, "Looking at the cluster …"));
    say([]);
    shown = "";
  }
  shownCluster = where;
  const { servers, principal } = here.view === "clusters" ? { servers: "" } : aboutHere();
  element("servers").textContent = servers + (several() && principal ? ` as ${principal}` : "");
  if (several()) morphChildren(element("clusters"), [clusterChoice(where)]);
}

const clusterChoice = (where) =>
  h("select", { id: "cluster", "aria-label": "Cluster" },
    [["", "All clusters"], ...about.clusters.map(({ name }) => [name, name])].map(([value, words]) =>
      h("option", { value, selected: value === where }, words)));

function showClusters(here, answer) {
  say([]);
  pulse(true, `live, ${clock(Date.now())}`);
  draw(here, VIEWS.clusters(answer));
}

function show(here, answer) {
  const notices = ["hot", ""].map((look) => unknown(answer.problems.filter(({ severity }) => heat(severity) === look), look)).filter(Boolean);
  if (aboutHere().locked) notices.push(notice("This page only looks.", "For changes, open the address with a token that `fencepost ui` has printed.", ""));
  if (answer.away !== null) {
    const last = answer.seen_ms === null ? "" : `What is shown is from ${clock(answer.seen_ms)}. `;
    notices.unshift(notice("The cluster is away; asking again.", last + answer.away));
  }
  say(notices);
  pulse(answer.away === null && answer.seen_ms !== null, answer.away !== null ? "away" : answer.seen_ms === null ? "looking" : `live, ${clock(answer.seen_ms)}`);
  const partial = answer.partial.includes(WITHIN[here.view] || here.view);
  if (answer.view === null) draw(here, [h("h1", {}, here.query.name || ""), h("p", { class: "quiet" }, partial ? "It is not visible, and not all is known." : "There is no such thing in the cluster.")]);
  else if (Object.keys(answer.view).length) draw(here, VIEWS[here.view]({ ...answer.view, partial }, { ...aboutHere(), now_ms: answer.now_ms }, here));
}

function failed(here, error) {
  pulse(false, error.told ? "away" : "not connected");
  if (!error.told) introduced = false; // the program may be another when it is back
  say([error.told ? notice("This cannot be shown now.", error.message) : notice("The program behind this page does not answer.", `Has it been stopped? (${error.message})`)]);
  if (address(here.view, here.query) !== shown) draw(here, [h("h1", {}, here.query.name || "")]);
}

// One for all questions without an answer: each has a finding in the overview.
function unknown(problems, look) {
  const parts = [...new Set(problems.map(({ part }) => part))];
  const words = problems.length === 1 ? problems[0].reason : ["The ", link("overview", {}, "overview"), " has the reasons."];
  return parts.length > 0 && notice(`${parts.join(", ")}: not all is known.`, words, look);
}

const notice = (title, words, look = "hot") => h("p", { class: `notice ${look}`.trim() }, h("b", {}, title), " ", words);
const say = (notices) => morphChildren(element("notices"), notices);

function pulse(live, words) {
  element("pulse").className = live ? "pulse live" : "pulse";
  element("pulse").textContent = words;
}

// All but the last word gives way where there is no room.
function narrowing(words) {
  const last = words.lastIndexOf(" ") + 1;
  return [last > 0 && h("span", { class: "spare" }, words.slice(0, last)), words.slice(last)];
}

function draw(here, children) {
  const current = WITHIN[here.view] || here.view;
  const tabs = here.view === "clusters" ? [] : TABS;
  morphChildren(document.querySelector("nav"), tabs.map(([view, words]) =>
    h("a", { "data-key": view, href: address(view), "aria-current": view === current ? "page" : null }, narrowing(words))));
  const title = here.query.name || TABS.find(([view]) => view === current)?.[1] || "Clusters";
  document.title = [title, several() && here.view !== "clusters" && cluster(), "Fencepost"].filter(Boolean).join(" · ");
  const fresh = h("main", {}, ...children.flat(3));
  if (shown.split("?")[0] !== `#/${here.view}`) element("main").replaceChildren();
  morphChildren(element("main"), [...fresh.childNodes]);
  shown = address(here.view, here.query);
}

// --- asking before something is changed ---

const dialog = () => element("dialog");
const buttons = (...more) => h("div", { class: "buttons" }, more, h("button", { type: "button", "data-close": true }, "Leave it as it is"));

// `where`: the cluster that the dialog is about, which it names. The page may show another one: an outcome is told all the same.
function open(where, title, ...children) {
  const named = several() && h("p", { class: "sub" }, "Cluster ", h("code", {}, where));
  dialog().replaceChildren(...[h("h1", { id: "dialog-title" }, title), named, ...children.flat(3)].filter(Boolean));
  if (!dialog().open) dialog().showModal();
}

// True if the person has left this question, or has asked another one, before the server's answer.
const left = (mine) => mine !== questions;

const tell = (where, title, words) => open(where, title, h("p", {}, words), h("div", { class: "buttons" }, h("button", { type: "button", "data-close": true }, "Close")));

async function askToEnd(id, commit) {
  const where = cluster();
  const mine = ++questions;
  const verb = commit ? "Commit" : "Abort";
  let found;
  try {
    found = await ask(pathTo("/do/look-before-end", where), { id, commit });
  } catch (error) {
    if (!left(mine)) tell(where, "It could not be looked at", error.message);
    return;
  }
  if (left(mine)) return;
  const final = found.objections.find((each) => each.consent === null);
  open(
    where,
    `${verb} this transaction?`,
    h("p", {}, found.question),
    found.objections.map((each) =>
      each.consent === null
        ? h("p", { class: "hot" }, each.reason)
        : h("label", {}, h("input", { type: "checkbox", "data-consent": each.consent }), `I know that ${each.reason}. ${verb} it all the same.`)),
    buttons(!final && h("button", { type: "button", class: "grave", "data-go": true, disabled: found.objections.length > 0 }, `${verb} it`)),
  );
  const boxes = [...dialog().querySelectorAll("[data-consent]")];
  const go = dialog().querySelector("[data-go]");
  boxes.forEach((box) => box.addEventListener("change", () => (go.disabled = !boxes.every((each) => each.checked))));
  go?.addEventListener("click", () => carryOut(where, "/do/end", { id, commit, pair: found.pair, given: boxes.map((box) => box.dataset.consent) }));
}

function askToResolve(sink) {
  const where = cluster();
  questions++;
  open(
    where,
    "Resolve this sink?",
    h("p", {}, "What sink ", h("code", {}, sink), " has decided is committed; all else of it that is open is aborted, and its rows are lost unless the query writes them again."),
    h("p", {}, "A run of the query that is alive is superseded: stop it first."),
    buttons(h("button", { type: "button", class: "grave", "data-go": true }, "Resolve it")),
  );
  dialog().querySelector("[data-go]").addEventListener("click", () => carryOut(where, "/do/resolve", { sink }));
}

async function carryOut(where, path, wanted) {
  dialog().querySelector("[data-go]").disabled = true;
  try {
    tell(where, "Done", (await ask(pathTo(path, where), wanted)).done);
  } catch (error) {
    tell(where, "Not done", error.message);
  }
  look();
}

// --- hands ---

document.addEventListener("click", ({ target }) => {
  const { end, id, resolve, close } = target.dataset || {};
  if (end) askToEnd(id, end === "commit");
  if (resolve !== undefined) askToResolve(resolve);
  const { change, fixed } = target.dataset || {};
  if (change) askFields(change, JSON.parse(fixed));
  if (close !== undefined) dialog().close();
});

dialog().addEventListener("close", () => questions++);

let typing = 0;
document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-search]")) return;
  clearTimeout(typing);
  const here = location.hash;
  typing = setTimeout(() => {
    if (location.hash !== here) return; // the view was left
    const { view, query } = route();
    history.replaceState(null, "", address(view, { ...query, q: target.value, page: "" }));
    look();
  }, 150);
});

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || dialog().open) return;
  const search = document.querySelector("[data-search]");
  const tab = TABS[Number(event.key) - 1];
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (tab && route().view !== "clusters") location.hash = address(tab[0]);
});

// A form of a view: its fields are the view's query.
document.addEventListener("submit", (event) => {
  const view = event.target.dataset.view;
  if (!view) return;
  event.preventDefault();
  location.hash = address(view, Object.fromEntries(new FormData(event.target)));
  if (address(view, route().query) === shown) look();
});

document.addEventListener("change", ({ target }) => {
  if (target.id !== "cluster") return;
  const { view } = route();
  const kept = TABS.some(([each]) => each === view) ? view : "overview";
  location.hash = target.value ? `#/${kept}?${new URLSearchParams({ cluster: target.value })}` : "#/clusters";
});

window.addEventListener("hashchange", () => look());
document.addEventListener("visibilitychange", () => !document.hidden && !STILL.has(route().view) && look());
look();
