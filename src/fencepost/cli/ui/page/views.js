// A function for each view: from what the server says to elements.
"use strict";

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

function lasting(ms) {
  const whole = Math.max(Math.round(ms), 0);
  if (whole < 1000) return whole ? `${whole} ms` : "0 s";
  if (whole < 9950) return `${Number((whole / 1000).toFixed(1))} s`;
  const seconds = Math.round(whole / 1000);
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  const found = units.find(([size]) => seconds >= size);
  if (!found) return `${seconds} s`;
  const [size, unit, part, name] = found;
  const rest = Math.floor((seconds % size) / part);
  return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${rest} ${name}` : "");
}

const rate = (value) => `${value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(1)}/s`;
const link = (view, query, ...words) => h("a", { href: address(view, query) }, words);

// --- drawings ---

// The top of a scale: the next of 1, 2 and 5 times a power of ten.
function topOf(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((each) => Number((each * power).toPrecision(1))).find((each) => each >= most);
}

// The area and edge of points [x, y] in a box, and a title for each point under the mouse.
function drawing(points, [width, height], top, spaced, titles) {
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const across = points.map(([x], place) => (width * (spaced || from === to ? place / (points.length - 1) : (x - from) / (to - from))).toFixed(1));
  const edge = points.map(([, y], place) => `${across[place]},${(height - 1 - (y / top) * (height - 2)).toFixed(1)}`).join(" L");
  const step = width / points.length;
  return [
    h("path", { class: "area", d: `M0,${height} L${edge} L${width},${height} Z` }),
    h("path", { class: "edge", d: `M${edge}` }),
    titles && points.map((point, place) => h("rect", { class: "under", x: Math.max(across[place] - step / 2, 0), y: 0, width: step, height }, h("title", {}, titles(point)))),
  ];
}

const described = (points, what, say) => {
  const most = Math.max(...points.map(([, y]) => y));
  return `${what} from ${say.x(points[0][0])} to ${say.x(points.at(-1)[0])}: now ${say.y(points.at(-1)[1])}, at most ${say.y(most)}`;
};
const rates = { x: (ms) => clock(ms), y: (value) => rate(value) };
const offsets = { x: (ms) => clock(ms), y: (value) => plural(value, "offset") };
const batches = { x: (batch) => `batch ${number(batch)}`, y: (value) => plural(value, "row") };

// A small chart in a row of a table. Its scale begins at 0; the top stands beside it.
function spark(points, what, say) {
  if (points.length < 2) return null;
  const most = Math.max(...points.map(([, y]) => y));
  return h("span", { class: "sparked", "data-chart": "small", title: described(points, what, say) },
    h("svg", { class: "spark", viewBox: "0 0 90 22", preserveAspectRatio: "none", role: "img", "aria-label": described(points, what, say) },
      drawing(points, [90, 22], most || 1, true)),
    h("span", { class: "top", "data-scale": "y" }, `max ${number(Math.round(most))}`));
}

// Values over time, with both scales. points: [time in ms, value], the oldest first.
function overTime(points, what, say) {
  if (points.length < 2) return h("p", { class: "quiet" }, "Watching …");
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const top = topOf(Math.max(...points.map(([, value]) => value)));
  const y = [top, top / 2, 0].map((value) => h("span", { "data-scale": "y" }, number(value)));
  const x = [from, (from + to) / 2, to].map((at) => h("span", { "data-scale": "x" }, say.x(at)));
  return h("div", { class: "scaled", "data-chart": "wide" },
    h("div", { class: "y", "aria-hidden": "true" }, y),
    h("svg", { viewBox: "0 0 1000 120", preserveAspectRatio: "none", role: "img", "aria-label": described(points, what, say) },
      [0, 60, 119].map((at) => h("path", { class: "grid", d: `M0,${at} L1000,${at}` })),
      drawing(points, [1000, 120], top, false, ([at, value]) => `${say.x(at)}: ${say.y(value)}`)),
    h("div", { class: "x", "aria-hidden": "true" }, x));
}

const written = (points) =>
  h("section", { class: "panel" },
    h("div", { class: "chart" }, h("h2", {}, "Offsets written per second"), h("span", { class: "now" }, points.length ? rate(points.at(-1)[1]) : "")),
    overTime(points, "Offsets written", rates));

function lane(began, written, until, now) {
  const at = (ms) => (1000 * Math.min(Math.max(ms - began, 0), until - began)) / Math.max(until - began, 1);
  return h(
    "svg",
    { class: "lane", viewBox: "0 0 1000 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("rect", { class: "rest", x: 0, y: 5, width: 1000, height: 2 }),
    h("rect", { class: "waits", x: 0, y: 2, width: at(now), height: 8 }),
    written && h("rect", { class: "done", x: 0, y: 2, width: Math.max(at(written), 3), height: 8 }),
    until > now && h("rect", { class: "now", x: at(now), y: 0, width: 2, height: 12 }),
  );
}

// --- parts ---

// The heading of a view whose tab says the same to those who see it.
const heading = (words) => h("h1", { class: "unseen" }, words);

// columns: [heading, from row to content, class]; content is a value, an element or a list of these.
function table(columns, rows, key, none) {
  if (!rows.length) return h("p", { class: "quiet" }, none);
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, columns.map(([heading, , kind]) => h("th", { class: kind, scope: "col" }, heading)))),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          { "data-key": key(row) },
          columns.map(([heading, make, kind]) => h("td", { class: kind, "data-label": heading }, make(row))),
        ),
      ),
    ),
  );
}

function listing(view, route, { placeholder, choices, columns, key, none }) {
  const { q = "", page, ...others } = route.query;
  const turn = (to, words) => link(route.view, { ...route.query, page: to }, words);
  return [
    h(
      "div",
      { class: "tools" },
      h("input", {
        type: "search", "data-key": `search-${route.view}`, "data-search": true, value: q, placeholder, "aria-label": placeholder,
      }),
      choices,
      h("span", { class: "count" }, view.matching === view.total ? number(view.total) : `${number(view.matching)} of ${number(view.total)}`),
    ),
    table(columns, view.rows, key, view.total ? "Nothing matches." : view.partial ? "None is visible, and not all is known." : none),
    view.pages > 1 &&
      h(
        "p",
        { class: "pager" },
        view.page > 1 && turn(view.page - 1, "← earlier"),
        `page ${view.page} of ${number(view.pages)}`,
        view.page < view.pages && turn(view.page + 1, "later →"),
      ),
  ];
}

const choice = (view, name, options, chosen) =>
  h("span", { class: "choice" }, options.map(([value, words]) =>
    h("a", { href: address(view, { [name]: value }), "aria-current": value === chosen ? "true" : null }, words)));

function figures(facts) {
  return h("dl", { class: "figures" }, facts.filter(Boolean).map(([name, value, where, kind]) =>
    h("div", {}, h("dt", {}, name), h("dd", { class: kind }, where ? link(where, {}, value) : value))));
}

const OF_OFFSETS = new Set(["", "classic", "consumer", "share"]); // types of groups with committed or start offsets
const isSharing = (view) => view.type.toLowerCase() === "share";
const STATES = {
  Ongoing: "open", PrepareCommit: "committing", PrepareAbort: "aborting", PrepareEpochFence: "fencing",
  CompleteCommit: "committed", CompleteAbort: "aborted", Empty: "nothing yet", Dead: "expired",
};
const stateTag = (state, prepared) =>
  h("span", { class: prepared ? "tag hot" : "tag", title: prepared ? `${state}, two-phase: prepared, or about to be` : state }, prepared ? "prepared" : STATES[state] || state || "unknown");
const owner = ({ kind, sink, words }) => (kind === "sink" ? link("sink", { name: sink }, words) : h("span", { class: "quiet whole" }, words));
const transactionLink = (id) => link("transaction", { name: id }, id);
const topicLink = (name) => link("topic", { name }, name);

// A note says what was left out. It is no alarm.
const heat = (severity) => (severity === "note" ? "" : "hot");
const codeTag = ({ code, severity }) => h("span", { class: ["tag", heat(severity), severity].filter(Boolean).join(" "), title: severity }, code);

function findings(view) {
  return view.findings.map((each) =>
    h("p", {}, codeTag(each), ` ${each.words}.`, each.action && h("span", { class: "quiet" }, ` To do: ${each.action}`)));
}

// --- views ---

const SEVERITIES = { error: "error", warning: "warning", unknown: "question without an answer", note: "note" };

function clusterState(row) {
  if (row.away !== null) return h("span", { class: "hot", title: row.away }, "away");
  if (row.findings === null) return h("span", { class: "quiet" }, "looking …");
  const counts = Object.entries(SEVERITIES).filter(([severity]) => row.findings[severity]);
  if (!counts.length) return "no findings";
  return counts.map(([severity, word], place) =>
    [place ? ", " : "", h("span", { class: heat(severity) || null }, plural(row.findings[severity], word))]);
}

const VIEWS = {
  clusters(view) {
    return [
      h("h1", {}, "Clusters"),
      table(
        [
          ["Cluster", (row) => link("overview", { cluster: row.name }, row.name), "name"],
          ["State", clusterState],
          ["Brokers", (row) => number(row.brokers), "number"],
          ["Topics", (row) => number(row.topics), "number"],
          ["Servers", (row) => h("span", { class: "mono" }, row.servers)],
          ["As", (row) => row.principal || h("span", { class: "quiet" }, "–")],
          ["Changes", (row) => (row.actions ? "allowed" : "no")],
          ["Seen", (row) => (row.seen_ms === null ? "–" : clock(row.seen_ms)), "number"],
        ],
        view.rows, (row) => row.name, "None.",
      ),
    ];
  },

  overview(view, { now_ms: now }) {
    return [
      heading("Overview"),
      figures([
        ["Topics", number(view.topics), "topics"],
        ["Partitions", number(view.partitions), "topics"],
        ["Groups", number(view.groups), "groups"],
        ["Transactions", number(view.open), "transactions"],
        ["Prepared", number(view.prepared), "transactions", view.prepared ? "hot" : null],
        ["Held back", number(view.held), "topics", view.held ? "hot" : null],
        ["Spark sinks", number(view.sinks), "sinks"],
      ]),
      h("h2", {}, "Needs attention"),
      view.attention.length
        ? h("ul", { class: "attention" }, view.attention.map((each) =>
            h("li", { "data-key": `${each.code} ${each.kind} ${each.name}` },
              each.kind === "more" ? h("span") : codeTag(each),
              h("span", { class: "mono" }, each.link ? link(each.link, { name: each.target }, each.name) : each.name),
              h("span", { class: "quiet" }, [each.severity, each.since_ms && lasting(now - each.since_ms)].filter(Boolean).join(", ")),
              each.words && h("span", { class: "words" }, `${each.words}.`, each.action && h("span", { class: "quiet" }, ` To do: ${each.action}`)))))
        : h("p", { class: "quiet" }, "No findings."),
      written(view.rate),
      h("h2", {}, "Brokers"),
      table(
        [
          ["Id", (row) => [row.id, row.id === view.controller ? h("span", { class: "quiet" }, " controller") : ""]],
          ["Address", (row) => row.at, "name"],
        ],
        view.brokers, (row) => `broker ${row.id}`, "None.",
      ),
      view.cluster_id && h("p", { class: "sub" }, "Cluster ", h("code", {}, view.cluster_id)),
    ];
  },

  topics(view, about, route) {
    return [heading("Topics"), changeButtons(about, ["create-topic"], {}), listing(view, route, {
      placeholder: "Filter by name",
      choices: choice("topics", "internal", [["0", "Topics"], ["1", "Internal too"]], route.query.internal || "0"),
      none: "There is no topic.",
      key: (row) => row.name,
      columns: [
        ["Topic", (row) => [topicLink(row.name), row.trouble && h("span", { class: "hot" }, ` ${row.trouble}`)], "name"],
        ["Partitions", (row) => number(row.partitions), "number"],
        ["End, summed", (row) => number(row.end), "number"],
        ["Held back", (row) => h("span", { class: row.behind ? "hot" : "quiet" }, row.behind ? number(row.behind) : "–"), "number"],
        ["Written", (row) => [spark(row.rate, "Offsets written", rates), h("span", { class: "rate" }, row.rate.length ? rate(row.rate.at(-1)[1]) : "–")], "number"],
      ],
    })];
  },

  topic(view, about, route) {
    return [
      h("p", { class: "crumb" }, link("topics", {}, "Topics")),
      h("h1", {}, view.name),
      h("p", { class: "sub" }, plural(view.total, "partition"), view.internal ? ", internal" : "", ". ", link("messages", { name: view.name }, "Browse messages"), " · ", link("settings", { name: view.name }, "Settings")),
      changeButtons(about, ["produce", "grow-topic", "delete-topic"], { name: view.name }),
      written(view.rate),
      h("h2", {}, "Partitions"),
      listing(view, route, {
        placeholder: "Filter by number",
        none: "There is no partition.",
        key: (row) => `partition ${row.partition}`,
        columns: [
          ["Partition", (row) => row.partition],
          ["Leader", (row) => (row.leader === null ? h("span", { class: "hot" }, "none") : row.leader)],
          ["In sync", (row) => `${row.in_sync.length} of ${row.replicas.length}`],
          ["Committed readers stop at", (row) => number(row.stable), "number"],
          ["High watermark", (row) => number(row.end), "number"],
          ["Held back", (row) => held(row)],
        ],
      }),
    ];
  },

  transactions(view, { now_ms: now }, route) {
    return [
      heading("Transactions"),
      listing(view, route, {
        placeholder: "Filter by transactional id",
        choices: choice("transactions", "state", [["open", "Open"], ["prepared", "Prepared"], ["all", "All ids"]], route.query.state || "open"),
        none: route.query.state === "all" ? "The brokers list no transactional id." : "No transaction is open.",
        key: (row) => row.id,
        columns: [
          ["Transactional id", (row) => transactionLink(row.id), "name"],
          ["State", (row) => stateTag(row.state, row.prepared)],
          ["Age", (row) => (row.since_ms > 0 ? lasting(now - row.since_ms) : "–"), "number"],
          ["Partitions", (row) => number(row.partitions), "number"],
          ["Holds back", (row) => h("span", { class: row.holds ? "hot whole" : "quiet" }, row.holds ? plural(row.holds, "partition") : "–")],
          ["Whose", (row) => owner(row.owner)],
        ],
      }),
      view.open > view.described &&
        h("p", { class: "quiet" }, `${number(view.open)} are open; of the first ${number(view.described)} the age is asked for.`),
    ];
  },

  transaction(view, about) {
    const now = about.now_ms;
    return [
      h("p", { class: "crumb" }, link("transactions", {}, "Transactions")),
      h("h1", {}, view.id),
      h("p", { class: "sub" }, view.error ? view.error : [stateTag(view.state, view.prepared), " ", owner(view.owner)]),
      !view.error && figures([
        ["Producer", view.producer, null, "small"],
        view.began_ms && ["Open for", lasting(now - view.began_ms), null, "small"],
        view.began_ms && ["Began", clock(view.began_ms), null, "small"],
        ["Timeout", view.timeout_ms === null ? "none" : lasting(view.timeout_ms), null, "small"],
        view.began_ms && view.timeout_ms !== null && ["Times out in", lasting(view.began_ms + view.timeout_ms - now), null, "small"],
      ]),
      view.prepared && h("p", {}, "It never times out: it is prepared, or about to be. It waits for its owner to commit or abort it. Until then, readers of committed records wait."),
      findings(view),
      view.holds.length > 0 && h("p", {}, "Held back by it: ", h("span", { class: "mono" }, view.holds.join(", "))),
      view.partitions.length > 0 && [h("h2", {}, "Partitions"), lanes(view, now)],
      view.more_partitions > 0 && h("p", { class: "quiet" }, `And ${plural(view.more_partitions, "partition")} more.`),
      about.actions && view.can_end &&
        h("div", { class: "buttons" },
          h("button", { type: "button", "data-end": "commit", "data-id": view.id }, "Commit …"),
          h("button", { type: "button", "data-end": "abort", "data-id": view.id }, "Abort …")),
      h("h2", {}, "What was seen of it here"),
      view.events.length
        ? h("ol", { class: "events", reversed: true }, view.events.toReversed().map((each) => h("li", {}, h("time", {}, clock(each.at_ms)), each.what)))
        : h("p", { class: "quiet" }, "Nothing: it has not been open since this page watches."),
    ];
  },

  groups(view, _about, route) {
    return [heading("Groups"), listing(view, route, {
      placeholder: "Filter by name",
      none: "There is no group.",
      key: (row) => row.name,
      columns: [
        ["Group", (row) => (OF_OFFSETS.has(row.type.toLowerCase()) ? link("group", { name: row.name }, row.name) : row.name), "name"],
        ["Type", (row) => row.type || "–"],
        ["State", (row) => [h("span", { class: "tag" }, row.state || "unknown"), row.trouble.map((words) => h("span", { class: "hot", title: words }, " needs attention"))]],
        ["Topics", (row) => h("span", { class: "mono" }, row.topics.join(", ") || "–")],
        ["Lag", (row) => (row.error ? h("span", { class: "hot", title: row.error }, "not known") : [spark(row.lags, "Lag", offsets), h("span", { class: "rate" }, number(row.lag))]), "number"],
      ],
    })];
  },

  group(view, about, route) {
    return [
      h("p", { class: "crumb" }, link("groups", {}, "Groups")),
      h("h1", {}, view.name),
      h("p", { class: "sub" }, h("span", { class: "tag" }, view.state), ` ${view.type}, ${plural(view.member_count, "member")}${view.protocol ? `, ${view.protocol}` : ""}`),
      !isSharing(view) && changeButtons(about, ["reset-offsets"], { name: view.name }),
      findings(view),
      view.lags.length > 0 && h("section", { class: "panel" },
        h("div", { class: "chart" }, h("h2", {}, "Lag over time"), h("span", { class: "now" }, plural(view.lags.at(-1)[1], "offset"))),
        overTime(view.lags, "Lag", offsets)),
      h("h2", {}, "Partitions"),
      listing(view, route, {
        placeholder: "Filter by partition",
        none: isSharing(view) ? "It has read nothing." : "It has committed nothing.",
        key: (row) => `${row.topic}-${row.partition}`,
        columns: [
          ["Partition", (row) => link("topic", { name: row.topic }, `${row.topic}-${row.partition}`), "name"],
          [isSharing(view) ? "Start offset" : "Committed", (row) => number(row.committed), "number"],
          ["End", (row) => number(row.end), "number"],
          ["Lag", (row) => number(row.lag), "number"],
          ["Waits for", (row) => (row.waits_for ? (row.waits_for.id ? h("span", { class: "mono" }, transactionLink(row.waits_for.id)) : row.waits_for.words) : "–")],
          ["Member", (row) => h("span", { class: "mono" }, row.member || "–")],
        ],
      }),
      view.members.length > 0 && [
        h("h2", {}, "Members"),
        table(
          [
            ["Client", (row) => row.client, "name"],
            ["Host", (row) => h("span", { class: "mono" }, row.host)],
            ["Partitions", (row) => number(row.partitions), "number"],
            ["Member id", (row) => h("span", { class: "mono quiet" }, row.id)],
          ],
          view.members, (row) => row.id, "",
        ),
      ],
    ];
  },

  sinks(view, _about, route) {
    return [heading("Spark sinks"), listing(view, route, {
      placeholder: "Filter by name",
      none: "No Spark sink has decided anything here.",
      key: (row) => row.name,
      columns: [
        ["Sink", (row) => link("sink", { name: row.name }, row.name), "name"],
        ["Queries", (row) => number(row.queries), "number"],
        ["Last batch", (row) => number(row.batch), "number"],
        ["Open transactions", (row) => number(row.open), "number"],
        ["Rows by batch", (row) => spark(row.rows, "Rows", batches) || "–", "number"],
      ],
    })];
  },

  sink(view, about) {
    return [
      h("p", { class: "crumb" }, link("sinks", {}, "Sinks")),
      h("h1", {}, view.name),
      h("p", { class: "sub" }, view.undecided_count ? `${plural(view.undecided_count, "transaction")} open and not decided` : "Nothing is open that is not decided."),
      view.undecided.length > 0 && h("p", { class: "mono" }, view.undecided.map((id) => [transactionLink(id), " "])),
      view.queries.map((each) => [
        h("h2", {}, "Query ", h("code", {}, each.query)),
        h("p", { class: "sub" },
          `Batch ${number(each.batches[0].batch)} is decided. Its transactions: `,
          Object.entries(each.became).map(([words, many]) => `${number(many)} ${words}`).join(", ") || "none", "."),
        table(
          [
            ["Batch", (row) => number(row.batch)],
            ["Rows", (row) => number(row.rows), "number"],
            ["Checksum", (row) => h("span", { class: "mono" }, row.checksum || "–")],
            ["Transactions", (row) => number(row.transactions), "number"],
            ["First seen here", (row) => clock(row.seen_ms), "number"],
          ],
          each.batches, (row) => `batch ${row.batch} ${row.checksum}`, "",
        ),
        each.winners.length > 0 && table(
          [
            ["Its transaction", (row) => transactionLink(row.id), "name"],
            ["What became of it", (row) => h("span", { class: ["open", "lost"].includes(row.became) ? "tag hot" : "tag" }, row.became)],
          ],
          each.winners, (row) => row.id, "",
        ),
      ]),
      about.actions &&
        h("div", { class: "buttons" }, h("button", { type: "button", "data-resolve": view.name }, "Resolve this sink …")),
    ];
  },
};

function held(row) {
  if (row.stable === row.end || row.stable === null) return h("span", { class: "quiet" }, "–");
  const behind = h("span", { class: "hot whole" }, `${plural(row.end - row.stable, "offset")}`);
  if (!row.holder) return behind;
  return [behind, " by ", row.holder.id ? h("span", { class: "mono" }, transactionLink(row.holder.id)) : row.holder.words];
}

function lanes(view, now) {
  const began = view.began_ms || now;
  const until = view.timeout_ms === null ? now : Math.max(began + view.timeout_ms, now);
  const ends = until > now ? `times out ${clock(until)}` : `now ${clock(now)}`;
  return h("div", { class: "lanes", "data-chart": "lanes" },
    view.began_ms && [h("span"), h("span", { class: "x" }, h("span", { "data-scale": "x" }, `began ${clock(began)}`), h("span", { "data-scale": "x" }, ends))],
    view.partitions.map((each) => [
      h("span", { class: "mono" }, each.at),
      view.began_ms ? lane(began, each.written_ms, until, now) : h("span"),
      h("span", { class: "fact" }, each.error || [
        each.from_offset === null ? "nothing open" : `open from offset ${number(each.from_offset)}`,
        each.written_ms ? `, last written ${lasting(now - each.written_ms)} ago` : "",
        `, sequence ${number(each.sequence)}, epoch ${each.epoch}`,
        each.fenced ? " (another than the coordinator has now)" : "",
      ]),
    ]));
}
