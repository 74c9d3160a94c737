// Changes of topics, groups, rights, users and quotas: a form, a question that names the object, and the answer.
"use strict";

// By change: [title, fields]; a field: [label, name, options or null, hint].
const CHANGE_FORMS = {
  "create-topic": ["Create topic", [["Name", "name"], ["Partitions", "partitions", null, "the broker's default"], ["Replicas", "replicas", null, "the broker's default"], ["Settings, one name=value a line", "settings", "lines"]]],
  "grow-topic": ["Add partitions", [["New total number", "partitions"]]],
  "configure-topic": ["Change a setting", [["Setting", "setting"], ["Value", "value", null, "empty: the default"]]],
  "delete-topic": ["Delete topic", []],
  produce: ["Write a record", [["Key", "key", null, "empty: none"], ["Value", "value", "lines"], ["Value is", "null", [["", "the text"], ["1", "null (a tombstone)"]]], ["Headers, one name=value a line", "headers", "lines"], ["Partition", "partition", null, "by key"], ["Transactional id", "transactional_id", null, "empty: no transaction"]]],
  "reset-offsets": ["Reset offsets", [["To", "to", [["earliest", "earliest"], ["latest", "latest"], ["time", "time"], ["offset", "offset"]]], ["Time or offset", "at", null, "2026-01-31T12:00 or 120"], ["Topic", "topic", null, "all"], ["Partition", "partition", null, "all"]]],
  "add-acl": ["Add a rule", [["Principal", "principal", null, "User:alice"], ["Permission", "permission", [["ALLOW", "allow"], ["DENY", "deny"]]], ["Operation", "operation", ["READ", "WRITE", "DESCRIBE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CLUSTER_ACTION", "ALL"].map((each) => [each, each])], ["Resource", "resource", ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"].map((each) => [each, each])], ["Name of the resource", "resource_name"], ["Name is", "pattern", [["LITERAL", "the whole name"], ["PREFIXED", "a prefix"]]], ["Host", "host", null, "any"]]],
  "delete-acl": ["Delete", []],
  "set-user": ["Set a password", [["User", "user"], ["Mechanism", "mechanism", [["SCRAM_SHA_512", "SCRAM-SHA-512"], ["SCRAM_SHA_256", "SCRAM-SHA-256"]]], ["Password", "password", "password"]]],
  "delete-user": ["Delete", []],
  "set-quota": ["Set a quota", [["User", "user"], ["Client id", "client_id"], ["IP address", "ip"], ["Quota", "quota", ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"].map((each) => [each, each])], ["Value", "value", null, "empty: remove it"]]],
};

const changeButtons = (about, names, fixed) =>
  about.actions && h("p", { class: "buttons tight" }, names.map((name) => h("button", { type: "button", "data-change": name, "data-fixed": JSON.stringify(fixed) }, `${CHANGE_FORMS[name][0]} …`)));

function changeField([words, name, kind, hint]) {
  if (Array.isArray(kind)) return select(words, name, kind, kind[0][0]);
  if (kind === "lines") return h("label", { class: "broad" }, words, h("textarea", { name }));
  return field(words, name, "", { placeholder: hint, type: kind === "password" ? "password" : null });
}

function askFields(change, fixed) {
  const where = cluster();
  const [title, fields] = CHANGE_FORMS[change];
  if (!fields.length) {
    askChange(where, { change, ...fixed });
    return;
  }
  questions++;
  open(where, title, h("form", {}, h("div", { class: "fields" }, fields.map(changeField)), buttons(h("button", { type: "submit" }, "Continue"))));
  dialog().querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    askChange(where, { change, ...Object.fromEntries(new FormData(event.target)), ...fixed });
  });
}

async function askChange(where, wanted) {
  const mine = ++questions;
  let found;
  try {
    found = await ask(pathTo("/do/look-before-change", where), wanted);
  } catch (error) {
    if (!left(mine)) tell(where, "Not done", error.message);
    return;
  }
  if (left(mine)) return;
  const confirm = found.grave && h("label", {}, "Type ", h("code", {}, found.name), " to confirm", h("input", { name: "confirm", autocomplete: "off" }));
  open(where, "Do this?", h("p", {}, found.question), confirm && h("div", { class: "fields" }, confirm),
    buttons(h("button", { type: "button", class: "grave", "data-go": true, disabled: found.grave }, "Do it")));
  const go = dialog().querySelector("[data-go]");
  const typed = dialog().querySelector("[name=confirm]");
  typed?.addEventListener("input", () => (go.disabled = typed.value !== visible(found.name)));
  go.addEventListener("click", () => carryOut(where, "/do/change", { ...wanted, confirm: typed && found.name }));
}

const problem = (view, name) => [
  view.errors[name] && h("p", { class: "hot" }, view.errors[name]),
  view.more[name] > 0 && h("p", { class: "hot" }, `${number(view.more[name])} more are not shown.`),
];

Object.assign(VIEWS, {
  disks(view, _about, route) {
    return [
      h("h1", {}, "Disks"),
      table(
        [
          ["Broker", (row) => row.broker],
          ["Directory", (row) => [row.path, row.error && h("span", { class: "hot" }, ` ${row.error}`)], "name"],
          ["Replicas", (row) => number(row.replicas), "number"],
          ["Logs", (row) => sized(row.used), "number"],
          ["Free", (row) => (row.free === null ? "not reported" : sized(row.free)), "number"],
          ["Disk", (row) => (row.total === null ? "not reported" : [sized(row.total), " ", h("meter", { min: 0, max: row.total, value: row.total - row.free, "aria-label": `used of ${row.path}` })]), "number"],
        ],
        view.directories, (row) => `${row.broker} ${row.path}`, "No broker has reported its log directories.",
      ),
      h("h2", {}, "Topics by size on all brokers"),
      listing(view, route, {
        placeholder: "Filter by name",
        none: "There is no log.",
        key: (row) => row.name,
        columns: [["Topic", (row) => topicLink(row.name), "name"], ["Bytes, all replicas", (row) => sized(row.bytes), "number"]],
      }),
    ];
  },

  settings(view, about) {
    return [
      h("p", { class: "crumb" }, link("topics", {}, "Topics"), " / ", topicLink(view.name)),
      h("h1", {}, "Settings of ", view.name),
      changeButtons(about, ["configure-topic"], { name: view.name }),
      table([["Setting", (row) => row.name, "name"], ["Value", (row) => h("code", {}, row.value === null ? "hidden" : row.value)], ["Source", (row) => row.source]], view.rows, (row) => row.name, "None."),
    ];
  },

  access(view, about) {
    const remove = (name, heading) => about.actions && [heading, (row) => h("button", { type: "button", "data-change": name, "data-fixed": JSON.stringify(row), "aria-label": `Delete ${row.principal || row.user}` }, "Delete …")];
    return [
      h("h1", {}, "Access"),
      h("h2", {}, "Rules (ACLs)"),
      changeButtons(about, ["add-acl"], {}),
      problem(view, "acls"),
      table([["Principal", (row) => row.principal, "name"], ["May", (row) => h("span", { class: row.permission === "DENY" ? "tag hot" : "tag" }, row.permission)], ["Operation", (row) => row.operation], ["Resource", (row) => `${row.resource} ${row.resource_name}${row.pattern === "PREFIXED" ? "…" : ""}`], ["Host", (row) => row.host], remove("delete-acl", "Change")].filter(Boolean), view.acls, (row) => JSON.stringify(row), view.errors.acls ? "" : "There is no rule."),
      h("h2", {}, "SCRAM users"),
      changeButtons(about, ["set-user"], {}),
      problem(view, "users"),
      table([["User", (row) => row.user, "name"], ["Mechanism", (row) => row.mechanism], ["Iterations", (row) => number(row.iterations), "number"], remove("delete-user", "Change")].filter(Boolean), view.users, (row) => `${row.user} ${row.mechanism}`, view.errors.users ? "" : "There is no user."),
      h("h2", {}, "Client quotas"),
      changeButtons(about, ["set-quota"], {}),
      problem(view, "quotas"),
      table([["For", (row) => row.entity, "name"], ["Quota", (row) => row.quota], ["Value", (row) => number(row.value), "number"]], view.quotas, (row) => `${row.entity} ${row.quota}`, view.errors.quotas ? "" : "There is no quota."),
    ];
  },
});
