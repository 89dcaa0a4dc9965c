//! House rules that a compiler does not know: the layer table of the design, what the pure layers may name, the size of
//! files and functions, and what every file opens with. It reads the sources as text and must not know what they do.
//! Invariant: a rule is broken nowhere but where a list in this file says so, and the lists only get shorter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Top-level modules by layer, from the words up. Imports point to lower layers only.
const LAYERS: &[&[&str]] = &[
    &["types", "fault"],
    &["config", "wire"],
    &["storage", "replica", "metadata", "coordinator", "share", "security", "quota"],
    &["peer", "broker", "controller"],
    &["api"],
    &["server", "console"],
    &["cli"],
];

/// Imports within one layer that the design allows: (who, whom).
const SAME_LAYER: &[(&str, &str)] = &[
    ("coordinator", "metadata"),
    ("replica", "metadata"),
    ("share", "metadata"),
    ("security", "metadata"),
    ("quota", "metadata"),
    ("broker", "controller"),
    ("broker", "peer"),
    ("controller", "peer"),
    ("server", "console"),
];

/// The layer of pure and synchronous code.
const PURE_LAYER: usize = 2;

/// What the pure layer must not name.
const IMPURE: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime::now",
    "rand::",
    "Uuid::new_v4",
];

/// Files of the pure layer that may name one of these words after all, and why.
const IMPURE_ALLOWED: &[(&str, &str, &str)] = &[("src/storage/disk.rs", "std::fs", "the one door to files")];

/// Names that belong to some modules only: (name, where it may appear; a path or the start of one).
const CONFINED: &[(&str, &[&str])] = &[
    ("openraft::", &["src/controller/"]),
    ("kafka_protocol::", &["src/wire/", "src/peer/", "src/api/", "src/broker/", "src/controller/"]),
    // The server answers for frames that reach no handler; all other codes are chosen by the handlers.
    // Where a broker asks the active controller, the leaders that it follows or those of a transaction's partitions, it reads the codes of the answers; so does what asks as a client.
    (
        "ErrorCode",
        &[
            "src/types/",
            "src/api/",
            "src/server/",
            "src/broker/controller_channel/",
            "src/broker/fetcher/answers.rs",
            "src/cli/scripts/",
            "src/broker/transactions/answers.rs",
        ],
    ),
    ("allow(unsafe_code)", &["src/wire/rope.rs"]),
    ("tokio::sync::Mutex", &[]),
    ("tokio::sync::RwLock", &[]),
    // kafka-protocol's traits speak in anyhow's Result, and wire implements them.
    ("anyhow::", &["src/cli/", "src/main.rs", "src/wire/"]),
];

/// The longest file, and the files that are longer: a file here may only shrink.
const FILE_LINES: usize = 800;
const LONG_FILES: &[(&str, usize)] = &[];

/// The longest function outside tests, and the functions that are longer (`file::function`): they may only shrink.
const FUNCTION_LINES: usize = 70;
const LONG_FUNCTIONS: &[(&str, usize)] = &[];

/// One source file: its text, its code with comments and strings blanked out, and that code without its tests.
struct Source {
    path: String,
    text: String,
    code: String,
    product: String,
}

impl Source {
    /// The top-level module that this file belongs to; `None` for `main.rs`, `lib.rs` and test files.
    fn module(&self) -> Option<&str> {
        let below = self.path.strip_prefix("src/")?;
        let module = below.split('/').next()?.trim_end_matches(".rs");
        (module != "main" && module != "lib").then_some(module)
    }

    /// How deep this file's module lies below the crate root: `src/wire/frame.rs` at 2.
    fn depth(&self) -> usize {
        let parts = self.path.matches('/').count();
        if self.path.ends_with("/mod.rs") { parts - 1 } else { parts }
    }

    fn line_of(&self, position: usize) -> usize {
        self.code[..position].matches('\n').count() + 1
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for directory in ["src", "tests", "benches", "examples"] {
        collect(&root.join(directory), &mut paths);
    }
    paths.sort();
    let mut sources: Vec<Source> = paths.iter().map(|path| read(root, path)).collect();
    let test_files: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in &mut sources {
        let is_test = |start: &String| source.path.starts_with(start.as_str());
        if !source.path.starts_with("src/") || test_files.iter().any(is_test) {
            source.product = blank(&source.product);
        }
    }
    assert!(sources.len() > 10, "the sources are not where this test looks for them");
    sources
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn read(root: &Path, path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("a source file");
    let code = blank_comments_and_strings(&text);
    let product = blank_tests(&code);
    let path = path.strip_prefix(root).expect("a path below the root").display().to_string();
    Source { path, text, code, product }
}

/// Replaces all but line ends with blanks.
fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { ' ' }).collect()
}

/// The code with every comment, string and character literal blanked out; positions of lines stay.
fn blank_comments_and_strings(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        let length = literal_length(rest, previous).unwrap_or(0);
        if length > 0 {
            code.push_str(&blank(&rest[..length]));
            previous = ' ';
        } else {
            code.push(first);
            previous = first;
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    code
}

/// How many bytes the comment or literal at the start of `rest` has; `None` when there is none.
fn literal_length(rest: &str, previous: char) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    if !(previous.is_alphanumeric() || previous == '_') {
        let raw = rest.trim_start_matches('b').strip_prefix('r');
        if let Some(raw) = raw.filter(|_| rest.starts_with('r') || rest.starts_with("br")) {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if let Some(body) = raw[hashes..].strip_prefix('"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let start = rest.len() - body.len();
                return Some(body.find(&end).map_or(rest.len(), |at| start + at + end.len()));
            }
        }
    }
    if rest.starts_with('"') {
        return Some(quoted_length(rest, '"'));
    }
    // A character literal ends soon; a lifetime has no closing quote there.
    if let Some(body) = rest.strip_prefix('\'') {
        let escaped = body.starts_with('\\');
        let closes = body.char_indices().nth(1).is_some_and(|(at, _)| body[at..].starts_with('\''));
        if escaped || closes {
            return Some(quoted_length(rest, '\''));
        }
    }
    None
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The code with every item under `#[cfg(test)]` blanked out.
fn blank_tests(code: &str) -> String {
    let mut product = code.to_owned();
    for mark in ["#[cfg(test)]", "#[cfg(any(test"] {
        while let Some(start) = product.find(mark) {
            let end = item_end(&product, start + mark.len());
            let blanked = blank(&product[start..end]);
            product.replace_range(start..end, &blanked);
        }
    }
    product
}

/// Where the item that starts at `from` ends: at its first `;`, or at the brace that closes its first `{`.
fn item_end(code: &str, from: usize) -> usize {
    let mut braces = 0usize;
    let mut brackets = 0usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return from + at + 1;
                }
            }
            ';' if braces == 0 && brackets == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The paths (or starts of paths) of the modules that a file declares under `#[cfg(test)]`.
fn test_modules(source: &Source) -> Vec<String> {
    let directory = match source.path.strip_suffix("/mod.rs").or_else(|| source.path.strip_suffix("/lib.rs"))
    {
        Some(directory) => directory.to_owned(),
        None => source.path.trim_end_matches(".rs").to_owned(),
    };
    let mut found = Vec::new();
    for (at, mark) in source.code.match_indices("#[cfg(test)]") {
        let item = source.code[at + mark.len()..].trim_start();
        let item =
            item.strip_prefix("pub(crate)").or_else(|| item.strip_prefix("pub")).unwrap_or(item).trim_start();
        if let Some(name) = item.strip_prefix("mod ").map(leading_word) {
            found.push(format!("{directory}/{name}.rs"));
            found.push(format!("{directory}/{name}/"));
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn leading_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// Where `name` stands in `code` as a whole word at its start.
fn places<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(name)
        .map(|(at, _)| at)
        .filter(move |&at| !code[..at].ends_with(is_word) || !name.starts_with(is_word))
}

/// The top-level modules that a file names, with the position: `crate::x`, `crate::{x, y::z}` and enough `super::`.
fn imports(source: &Source) -> Vec<(usize, &str)> {
    let code = source.product.as_str();
    let mut found = Vec::new();
    let climb = "super::".repeat(source.depth());
    for prefix in ["crate::", "floodmark::", climb.as_str()] {
        for at in places(code, prefix) {
            let climbing = code[..at].ends_with("super::");
            if prefix.is_empty() || climbing {
                continue;
            }
            let rest = &code[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(group_heads(group).into_iter().map(|name| (at, name))),
                None => found.push((at, leading_word(rest))),
            }
        }
    }
    found
}

/// The first word of each member of a `{a::b, c::{d, e}}` group, given what follows its opening brace.
fn group_heads(group: &str) -> Vec<&str> {
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut at_head = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if depth == 0 && at_head && is_word(c) => {
                heads.push(leading_word(&group[at..]));
                at_head = false;
            }
            _ => {}
        }
    }
    heads
}

/// Fails with every violation at once.
fn report(rule: &str, violations: &[String]) {
    let mut text = String::new();
    for violation in violations {
        let _ = writeln!(text, "  {violation}");
    }
    assert!(violations.is_empty(), "{rule}\n{text}");
}

#[test]
fn imports_point_downward() {
    let mut violations = Vec::new();
    for source in sources() {
        let Some(module) = source.module() else { continue };
        let Some(layer) = layer_of(module) else {
            violations.push(format!("{}: module {module} is in no layer of tests/tidy.rs", source.path));
            continue;
        };
        for (at, imported) in imports(&source) {
            let Some(other) = layer_of(imported) else { continue };
            let allowed = other < layer || imported == module || SAME_LAYER.contains(&(module, imported));
            if !allowed {
                violations.push(format!("{}:{}: {module} names {imported}", source.path, source.line_of(at)));
            }
        }
    }
    report("a module names only modules of lower layers (design, section 2):", &violations);
}

#[test]
fn pure_layers_stay_pure() {
    let mut violations = Vec::new();
    for source in sources() {
        if source.module().and_then(layer_of) != Some(PURE_LAYER) {
            continue;
        }
        let grouped = ["fs", "net", "thread", "process"].map(|name| (name, "std::{"));
        for (name, group) in grouped {
            for at in places(&source.product, group) {
                if group_heads(&source.product[at + group.len()..]).contains(&name) {
                    violations.push(format!("{}:{}: std::{name}", source.path, source.line_of(at)));
                }
            }
        }
        for word in IMPURE {
            if IMPURE_ALLOWED.iter().any(|(path, allowed, _)| *path == source.path && allowed == word) {
                continue;
            }
            for at in places(&source.product, word) {
                violations.push(format!("{}:{}: {word}", source.path, source.line_of(at)));
            }
        }
    }
    report("layer 2 has no runtime, files, threads, clocks or randomness; they are arguments:", &violations);
}

#[test]
fn confined_names_stay_where_they_belong() {
    let mut violations = Vec::new();
    for source in sources() {
        for (name, homes) in CONFINED {
            if homes.iter().any(|home| source.path.starts_with(home)) {
                continue;
            }
            for at in places(&source.product, name) {
                violations.push(format!("{}:{}: {name}", source.path, source.line_of(at)));
            }
        }
    }
    report("some names may appear in their own modules only:", &violations);
}

#[test]
fn files_open_with_their_purpose() {
    let lacking = |source: &Source| (!source.text.starts_with("//!")).then(|| source.path.clone());
    let violations: Vec<String> = sources().iter().filter_map(lacking).collect();
    report("a file opens with //! and says what it owns:", &violations);
}

#[test]
fn files_stay_short() {
    let lengths = sources().into_iter().map(|source| (source.path, source.text.lines().count()));
    report("files past the limit are split by role:", &ratchet(lengths, FILE_LINES, LONG_FILES));
}

#[test]
fn functions_fit_on_a_screen() {
    let mut lengths = Vec::new();
    for source in sources() {
        for at in places(&source.product, "fn ") {
            let name = leading_word(&source.product[at + 3..]);
            let end = item_end(&source.product, at);
            lengths.push((
                format!("{}::{name}", source.path),
                source.product[at..end].matches('\n').count() + 1,
            ));
        }
    }
    report("long functions are split:", &ratchet(lengths, FUNCTION_LINES, LONG_FUNCTIONS));
}

/// What is longer than `limit` and not listed, longer than its list says, or listed though it need not be.
fn ratchet(
    lengths: impl IntoIterator<Item = (String, usize)>,
    limit: usize,
    listed: &[(&str, usize)],
) -> Vec<String> {
    let mut longest: BTreeMap<String, usize> = BTreeMap::new();
    for (name, length) in lengths {
        let known = longest.entry(name).or_default();
        *known = length.max(*known);
    }
    let mut violations = Vec::new();
    for (name, length) in &longest {
        let allowed = listed.iter().find(|(path, _)| path == name).map_or(limit, |(_, length)| *length);
        if *length > allowed {
            violations.push(format!("{name}: {length} lines, at most {allowed}"));
        }
    }
    for (name, allowed) in listed {
        let length = longest.get(*name).copied().unwrap_or(0);
        if length < *allowed {
            violations
                .push(format!("{name}: the list says {allowed} lines, it has {length}: lower the list"));
        }
    }
    violations
}

#[test]
fn tests_neither_sleep_nor_hide() {
    let mut violations = Vec::new();
    for source in sources() {
        for at in places(&source.code, "#[ignore") {
            violations.push(format!("{}:{}: an ignored test", source.path, source.line_of(at)));
        }
        for at in places(&source.code, "sleep(") {
            let in_product = source.product[at..].starts_with("sleep(");
            if !in_product {
                violations.push(format!("{}:{}: a test that sleeps", source.path, source.line_of(at)));
            }
        }
    }
    report("tests wait for what happens, not for time to pass, and all of them run:", &violations);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut violations = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                violations.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    report("work that is left belongs into an issue:", &violations);
}

mod the_reader {
    use super::{blank_comments_and_strings, blank_tests, group_heads, item_end};

    #[test]
    fn blanks_what_is_not_code() {
        let quote = '"';
        let text =
            format!("let a = {quote}tokio::{quote}; // rand::\nlet b = '\\'' as char; fn c<'x>() {{}}");
        let code = blank_comments_and_strings(&text);
        assert_eq!(code.len(), text.len());
        assert!(!code.contains("tokio") && !code.contains("rand"), "{code}");
        assert!(code.contains("fn c<'x>() {}"), "{code}");
    }

    #[test]
    fn blanks_raw_strings() {
        let text = "let a = r#\"say \"std::fs\" \"#; let rb = br\"std::fs\"; use std::net;";
        let code = blank_comments_and_strings(text);
        assert!(!code.contains("std::fs") && code.contains("use std::net;"), "{code}");
    }

    #[test]
    fn leaves_out_tests() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { { } }\n}\nfn c() {}";
        let product = blank_tests(code);
        assert!(
            product.contains("fn a") && product.contains("fn c") && !product.contains("fn b"),
            "{product}"
        );
    }

    #[test]
    fn finds_ends_and_groups() {
        assert_eq!(item_end("fn a(b: [u8; 4]) { c(); } d", 0), 25);
        assert_eq!(group_heads("a::b, c::{d, e}, f}; g, h"), ["a", "c", "f"]);
    }
}
