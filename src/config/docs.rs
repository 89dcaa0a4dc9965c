//! The reference page of all properties, made from the table. Knows no files. Invariant: the committed
//! `docs/configuration.md` is what this makes; a test compares them, and `UPDATE_DOCS=1` rewrites the page.

use std::fmt::Write;
use std::path::Path;

use super::def::{ConfigDef, DefaultValue, Dynamic, Importance, Scope, Support, Unit};
use super::table::{BROKER_THEMES, table};

const PREAMBLE: &str = "\
# Configuration

<!-- Made from the table in src/config/table by `UPDATE_DOCS=1 cargo test --lib config::docs`; not edited by hand. -->

Properties have the names, types and defaults of Apache Kafka 4.4. They come from, and the later wins:

1. the defaults below;
2. `--config FILE`: TOML when the name ends in `.toml`, else a Java `.properties` file, such as Kafka's own;
3. environment variables as in Kafka's Docker image: `KAFKA_` and the name in capitals, where `_` stands for `.`, `__`
   for `_` and `___` for `-` (`KAFKA_LOG_DIRS` sets `log.dirs`);
4. `--override KEY=VALUE`.

In TOML a property is a quoted key (`\"log.retention.ms\" = 3600000`) or stands in nested tables; lists may be arrays. Where
one property's name begins another's (`max.connections` and `max.connections.per.ip`), put both in quotes.

Without a file a node stands alone: a broker and controller with `node.id` 1 that listens on 127.0.0.1:9092, keeps its data
in `./floodmark-data`, and needs one replica for internal topics.

A wrong value is refused at the start with its place and the reason. A property that has no effect yet is accepted, with
a warning that says what happens instead; an unknown one is accepted with a warning too. `floodmark config check FILE`
tells all of this about a file.

A property of one listener is written `listener.name.NAME.PROPERTY`; of those that have an effect, `max.connections` alone
may differ between listeners.

*Changes* tells whether a broker's property can be changed by `kafka-configs.sh` while the broker runs: not at all
(*restart*), for one broker at a time (*per broker*), or for one broker and for the whole cluster (*cluster-wide*).
";

fn markdown() -> String {
    let mut page = String::from(PREAMBLE);
    page.push_str("\n## Properties of brokers and controllers\n");
    for theme in BROKER_THEMES {
        let _ = write!(page, "\n### {}\n\n", theme.title);
        entries(&mut page, theme.defs.iter(), Scope::Broker);
    }
    for (title, scope) in [
        ("Properties of topics", Scope::Topic),
        ("Properties of groups", Scope::Group),
        ("Properties of subscriptions to metrics of clients", Scope::ClientMetrics),
    ] {
        let _ = write!(page, "\n## {title}\n\n");
        entries(&mut page, table(scope).iter(), scope);
    }
    page
}

fn entries<'a>(page: &mut String, defs: impl Iterator<Item = &'a ConfigDef>, scope: Scope) {
    for def in defs.filter(|def| !def.internal) {
        let _ = writeln!(page, "- **`{}`**{}: {}\\", def.name, ours(def), def.doc);
        let _ = write!(page, "  {}", facts(def, scope).join("; "));
        if let Support::Accepted(instead) = def.support {
            let _ = write!(page, "\\\n  *No effect yet: {instead}.*");
        }
        page.push('\n');
    }
}

fn ours(def: &ConfigDef) -> &'static str {
    if def.ours { " (Floodmark's own)" } else { "" }
}

fn facts(def: &ConfigDef, scope: Scope) -> Vec<String> {
    let mut facts = vec![def.kind.word().to_owned()];
    facts.extend(def.validator.accepts());
    facts.push(match def.default {
        DefaultValue::Required => "must be set".to_owned(),
        DefaultValue::Null => "default: unset".to_owned(),
        DefaultValue::Text("") => "default: empty".to_owned(),
        DefaultValue::Text(text) => format!("default: `{text}`"),
    });
    let synonyms: Vec<String> =
        def.synonyms.iter().map(|it| format!("`{}`{}", it.name, in_unit(it.unit))).collect();
    if !synonyms.is_empty() {
        facts.push(format!("unset, the broker's {}", synonyms.join(", else ")));
    }
    if scope == Scope::Broker {
        facts.push(match def.dynamic {
            Dynamic::ReadOnly => "changes: restart".to_owned(),
            Dynamic::PerBroker => "changes: per broker".to_owned(),
            Dynamic::ClusterWide => "changes: cluster-wide".to_owned(),
        });
    }
    facts.push(match def.importance {
        Importance::High => "importance: high".to_owned(),
        Importance::Medium => "importance: medium".to_owned(),
        Importance::Low => "importance: low".to_owned(),
    });
    facts
}

fn in_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Same => "",
        Unit::Minutes => " (minutes)",
        Unit::Hours => " (hours)",
    }
}

#[test]
fn the_committed_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let page = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/configuration.md is out of date: UPDATE_DOCS=1 cargo test --lib config::docs"
    );
}
