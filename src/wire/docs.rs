//! The reference page of the served APIs, made from the table. Knows no files. Invariant: the committed `docs/apis.md` is
//! what this makes; the test compares them, and `UPDATE_DOCS=1` rewrites the page.

use std::fmt::Write;
use std::path::Path;

use super::api::{API_TABLE, ApiRow, Listeners};

const PREAMBLE: &str = "\
# APIs

<!-- Made from the table in src/wire/api.rs by `UPDATE_DOCS=1 cargo test --lib wire::docs`; not edited by hand. -->

The APIs of Kafka's protocol that Floodmark serves, by key. Another API, or another version, closes the connection, but
for ApiVersions, which answers UNSUPPORTED_VERSION. *Flexible from* is the first version with compact lengths and tagged
fields (KIP-482). *Listeners* are those of the role `broker`, and those that `controller.listener.names` lists.

| key | name | versions | flexible from | listeners |
|---|---|---|---|---|
";

fn markdown() -> String {
    let mut page = String::from(PREAMBLE);
    for row in API_TABLE.iter().filter(|row| row.is_told()) {
        let flexible = row.flexible_from.map_or_else(|| "never".to_owned(), |first| first.to_string());
        let listeners = listeners(row.listeners);
        writeln!(page, "| {} | {} | {} | {flexible} | {listeners} |", row.key, row.name, versions(row))
            .unwrap();
    }
    page
}

fn versions(row: &ApiRow) -> String {
    let served = if row.min == row.max { row.min.to_string() } else { format!("{}-{}", row.min, row.max) };
    if row.advertised_min == row.min {
        served
    } else {
        format!("{served} (ApiVersions tells {}-{})", row.advertised_min, row.max)
    }
}

fn listeners(listeners: Listeners) -> &'static str {
    match listeners {
        Listeners { broker: true, controller: true } => "broker, controller",
        Listeners { broker: true, controller: false } => "broker",
        Listeners { broker: false, controller: true } => "controller",
        Listeners { broker: false, controller: false } => unreachable!("an API that nobody can call"),
    }
}

#[test]
fn the_committed_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/apis.md");
    let page = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/apis.md is out of date: UPDATE_DOCS=1 cargo test --lib wire::docs");
}
