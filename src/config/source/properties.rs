//! Java's properties format: comments, continued lines, escapes. Knows no property. Invariant: what Java's
//! `Properties.load` reads from the same bytes is read here, except that bytes that are UTF-8 are taken as UTF-8, and
//! that a line of nothing but a backslash sets nothing.

use super::Line;

/// The settings of a file with the line on which each begins, in the order of the file; or the line and the reason why
/// it cannot be read.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Line>, (u32, String)> {
    // Java reads Latin-1 where it is given bytes; people write UTF-8.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    };
    let mut settings = Vec::new();
    for (line, number) in logical_lines(&text) {
        let (key, value) = split(&line);
        let unescape = |part| unescape(part).map_err(|reason| (number, reason));
        settings.push((unescape(key)?, unescape(value)?, number));
    }
    Ok(settings)
}

/// The lines without blank ones and comments, continued ones joined, each with the number of its first.
fn logical_lines(text: &str) -> Vec<(String, u32)> {
    let mut lines: Vec<(String, u32)> = Vec::new();
    let mut continues = false;
    // Java ends a line at \n, \r or \r\n.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for (line, number) in text.split('\n').zip(1..) {
        let line = line.trim_start_matches([' ', '\t', '\x0c']);
        // A line that continues one of nothing but a backslash stands for itself.
        let joins = std::mem::replace(&mut continues, false)
            && lines.last().is_some_and(|(line, _)| !line.is_empty());
        if !joins && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        continues = backslashes % 2 == 1;
        let part = if continues { &line[..line.len() - 1] } else { line };
        match lines.last_mut() {
            Some((joined, _)) if joins => joined.push_str(part),
            _ => lines.push((part.to_owned(), number)),
        }
    }
    lines.retain(|(line, _)| !line.is_empty());
    lines
}

/// The key and the value of a line, still escaped: the key ends at the first `=`, `:` or blank that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|letter: char| {
        let ends = !escaped && matches!(letter, '=' | ':' | ' ' | '\t' | '\x0c');
        escaped = letter == '\\' && !escaped;
        ends
    });
    let Some(end) = end else { return (line, "") };
    let blanks = [' ', '\t', '\x0c'];
    let rest = line[end..].trim_start_matches(blanks);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], value.trim_start_matches(blanks))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let plain = match letter {
            '\\' => match letters.next() {
                Some('u') => {
                    units.push(unicode(&mut letters)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| "has half a pair of \\u escapes".to_owned())
}

fn unicode(letters: &mut std::str::Chars<'_>) -> Result<u16, String> {
    let digits: String = letters.by_ref().take(4).collect();
    let is_hex = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    match u16::from_str_radix(&digits, 16) {
        Ok(unit) if is_hex => Ok(unit),
        _ => Err(format!("has a malformed escape \\u{digits}")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn read(text: &str) -> Vec<(String, String, u32)> {
        parse(text.as_bytes()).unwrap()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = read(text);
        assert_eq!(all.len(), 1, "{all:?}");
        let (key, value, _) = all.remove(0);
        (key, value)
    }

    #[test]
    fn keys_end_at_an_equals_sign_a_colon_or_a_blank() {
        for text in ["k=v", "k:v", "k v", "k = v", "k : v", "k\tv", "  k  =  v", "k\x0cv", "k=v\r\n", "k=v\r"]
        {
            assert_eq!(one(text), ("k".into(), "v".into()), "{text:?}");
        }
        assert_eq!(one("k==v"), ("k".into(), "=v".into()));
        assert_eq!(one("k = : v"), ("k".into(), ": v".into()));
        assert_eq!(one("k"), ("k".into(), String::new()));
        assert_eq!(one("=v"), (String::new(), "v".into()));
        assert_eq!(one("k=v  "), ("k".into(), "v  ".into()), "blanks at the end belong to the value");
        assert_eq!(one("listeners=PLAINTEXT://:9092"), ("listeners".into(), "PLAINTEXT://:9092".into()));
    }

    #[test]
    fn escapes() {
        assert_eq!(one(r"a\=b\:c\ d=v"), ("a=b:c d".into(), "v".into()));
        assert_eq!(one(r"k=C:\\data\\logs"), ("k".into(), r"C:\data\logs".into()));
        assert_eq!(one(r"k=\t\n\r\f\q\#"), ("k".into(), "\t\n\r\x0cq#".into()));
        assert_eq!(one(r"k=\u00e9\u4E2D"), ("k".into(), "é中".into()));
        assert_eq!(one(r"k=\uD83D\uDE00"), ("k".into(), "😀".into()));
        assert_eq!(one("k=naïve"), ("k".into(), "naïve".into()));
        assert!(parse(br"k=\u12").is_err());
        assert!(parse(br"k=\u+123").is_err());
        assert_eq!(parse(b"a=1\nk=\\uZZZZ").unwrap_err().0, 2, "the line is named");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_latin_1() {
        assert_eq!(parse(b"k=\xe9").unwrap()[0].1, "é");
    }

    #[test]
    fn comments_and_blank_lines() {
        let text = "# comment\n! comment\n   # indented\n\n   \t\na=1 # not a comment\n#b=2\\\nc=3";
        assert_eq!(read(text), [("a".into(), "1 # not a comment".into(), 6), ("c".into(), "3".into(), 8),]);
    }

    #[test]
    fn lines_continue_after_an_odd_number_of_backslashes() {
        assert_eq!(
            read("a=1,\\\n    2,\\\r\n\t3\nb=x"),
            [("a".into(), "1,2,3".into(), 1), ("b".into(), "x".into(), 4),]
        );
        assert_eq!(one("k=v\\\\"), ("k".into(), "v\\".into()), "an escaped backslash does not continue");
        assert_eq!(one("k=v\\"), ("k".into(), "v".into()), "nothing follows");
        assert_eq!(one("k=v\\\n#w"), ("k".into(), "v#w".into()), "a continued line is no comment");
        assert_eq!(one("k\\\ney=v"), ("key".into(), "v".into()));
        assert_eq!(read("a=1\\\n\nb=2"), [("a".into(), "1".into(), 1), ("b".into(), "2".into(), 3)]);
    }
}
