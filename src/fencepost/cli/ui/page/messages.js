// The views of messages: a search, and one message.
"use strict";

const FROM = [["newest", "Newest first"], ["oldest", "Oldest first"], ["offset", "From offset"], ["time", "From time"]];
const FORMS = [["auto", "Automatic"], ["text", "Text"], ["json", "JSON"], ["hex", "Hex"], ["registry", "Schema registry"]];
const OUTCOMES = { none: "no transaction", committed: "committed", aborted: "aborted", open: "open", unknown: "unknown" };

const sized = (bytes) =>
  bytes < 1024 ? `${number(bytes)} B` : bytes < 1024 ** 2 ? `${(bytes / 1024).toFixed(1)} KiB` : bytes < 1024 ** 3 ? `${(bytes / 1024 ** 2).toFixed(1)} MiB` : `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
const moment = (ms) => (ms < 0 ? "no time" : new Date(ms).toLocaleString("sv"));

const field = (words, name, value, more) => h("label", {}, words, h("input", { name, value: value || "", autocomplete: "off", ...more }));
const select = (words, name, options, chosen) =>
  h("label", {}, words, h("select", { name }, options.map(([value, shown]) => h("option", { value, selected: value === chosen }, shown))));

function part(found) {
  if (found.kind === "null") return h("span", { class: "quiet" }, "null");
  return [
    h("code", { class: "part" }, found.text),
    found.cut && h("span", { class: "hot" }, ` cut; the whole has ${sized(found.bytes)}`),
    found.error && h("span", { class: "hot" }, ` ${found.error}`),
  ];
}

const outcome = (row) => [
  h("span", { class: ["aborted", "open", "unknown"].includes(row.outcome) ? "tag hot" : "tag" }, OUTCOMES[row.outcome]),
  row.owner && row.outcome === "open" && [" ", h("span", { class: "mono" }, transactionLink(row.owner))],
];

function searchForm(query) {
  return h(
    "form",
    { class: "search", "data-view": "messages", "data-key": JSON.stringify(query), role: "search", "aria-label": "Search messages" },
    h("input", { type: "hidden", name: "name", value: query.name }),
    select("Start", "from", FROM, query.from || "newest"),
    field("Offset or time", "at", query.at, { placeholder: "120 or 2026-01-31T12:00" }),
    field("Partition", "partition", query.partition, { inputmode: "numeric", placeholder: "all" }),
    field("Key contains", "key", query.key),
    field("Value contains", "value", query.value),
    field("Header", "header", query.header, { placeholder: "name or name=text" }),
    field("JSON path", "path", query.path, { placeholder: "customer.id = 7" }),
    select("Show as", "form", FORMS, query.form || "auto"),
    select("Records", "committed", [["", "All, with outcome"], ["1", "Committed only"]], query.committed || ""),
    h("button", { type: "submit" }, "Search"),
  );
}

Object.assign(VIEWS, {
  messages(view, _about, route) {
    const { cursor, ...query } = route.query;
    const next = view.cursor && { ...query, cursor: view.cursor };
    return [
      h("p", { class: "crumb" }, link("topics", {}, "Topics"), " / ", topicLink(view.name)),
      h("h1", {}, "Messages of ", view.name),
      searchForm(query),
      h("p", { class: "sub", role: "status" },
        `${plural(view.rows.length, "message")} of ${plural(view.scanned, "record")} read.`,
        !view.is_whole && h("span", { class: "hot" }, " The limit of one search was reached before the page was full: continue, or narrow the search."),
        view.skipped > 0 && h("span", { class: "hot" }, ` ${plural(view.skipped, "partition")} not searched: choose one.`)),
      view.flaws.map((words) => h("p", { class: "hot" }, words)),
      table(
        [
          ["Offset", (row) => link("message", { name: view.name, partition: row.partition, from: "offset", at: row.offset, form: query.form }, `${row.partition} : ${row.offset}`), "whole"],
          ["Time", (row) => h("span", { class: "whole", title: row.at_kind }, moment(row.at_ms))],
          ["Key", (row) => part(row.key)],
          ["Value", (row) => part(row.value)],
          ["Headers", (row) => (row.headers.length ? row.headers.map((each) => each.name).join(", ") : "–")],
          ["Transaction", (row) => outcome(row)],
        ],
        view.rows, (row) => `${row.partition}:${row.offset}`, view.scanned ? "No message matches." : "There is no message here.",
      ),
      h("p", { class: "pager" }, cursor && link("messages", query, "← start again"), next && link("messages", next, query.from && query.from !== "newest" ? "later →" : "older →")),
    ];
  },

  message(view, _about, route) {
    const crumb = h("p", { class: "crumb" }, link("topics", {}, "Topics"), " / ", topicLink(view.name), " / ", link("messages", { name: view.name, partition: view.partition }, "Messages"));
    const title = h("h1", {}, `${view.name}, partition ${view.partition}, offset ${number(view.offset)}`);
    if (!view.value) {
      return [crumb, title, view.flaws.map((words) => h("p", { class: "hot" }, words)),
        h("p", { class: "quiet" }, "There is no message at this offset: it is a marker of a transaction, was compacted or deleted, or is not written yet.")];
    }
    const whole = (words, found) => [h("h2", {}, words, h("span", { class: "quiet" }, ` ${found.kind}, ${sized(found.bytes)}`)), h("div", { class: "panel" }, part(found))];
    return [
      crumb,
      title,
      h("p", { class: "sub" }, `${moment(view.at_ms)} (${view.at_kind}) `, outcome(view), view.producer !== null && ` producer ${view.producer}`),
      h("p", {}, FORMS.map(([value, words]) => [link("message", { ...route.query, form: value }, words), " "])),
      whole("Key", view.key),
      whole("Value", view.value),
      view.headers.length > 0 && [h("h2", {}, "Headers"),
        table([["Name", (row) => row.name, "name"], ["Value", (row) => part(row)]], view.headers.map((each, place) => ({ ...each, place })), (row) => `header ${row.place}`, "")],
      view.more_headers > 0 && h("p", { class: "quiet" }, `And ${plural(view.more_headers, "header")} more.`),
    ];
  },
});
