//! Search: a part of Lucene's query language, over an index with a delay (rule S13).

use serde_json::{Value, json};

use super::listing::{PageRequest, Query};
use super::refusal::Refusal;
use super::store::Stored;
use super::world::World;

/// Characters that must be escaped within a term.
const SPECIAL: &str = "[]{}=&|<>!^~/";

#[derive(Clone, Copy, Debug, PartialEq)]
enum PatternPart {
    Literal(char),
    One,
    Any,
}

#[derive(Debug, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Term(Term),
}

#[derive(Debug, PartialEq)]
struct Term {
    /// Name of the field. `None` matches any field.
    field: Option<String>,
    pattern: Vec<PatternPart>,
}

#[derive(Debug)]
enum Expression {
    Term(Term),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl World {
    /// Answers `search/query`.
    pub(super) fn search(&mut self, query: &Query, reader: &str) -> Result<Value, Refusal> {
        let page = PageRequest::parse(query, &["query"])?;
        let text = query.iter().find(|(name, _)| name == "query").map(|(_, value)| value.as_str());
        let text = text.ok_or_else(|| Refusal::invalid("\"query\": is required"))?;
        let expression = parse(text).map_err(|reason| Refusal::new(400, 60_500, format!("invalid query: {reason}")))?;
        let (delay, matches_words) = (self.behaviour.index_delay, self.behaviour.search_matches_words);
        let rows = self.store.index(delay).map(|stored: &Stored| stored.render(reader));
        let mut rows: Vec<Value> = rows.filter(|row| expression.matches(row, matches_words)).collect();
        if let Some(field) = page.sort_by {
            rows.sort_by_key(|row| row[field].to_string());
        }
        if !page.is_ascending {
            rows.reverse();
        }
        let begin = page.cursor.map_or(Ok(0), str::parse::<usize>);
        let begin = begin.map_err(|_| Refusal::invalid("\"cursor\": it is not one of a search"))?.min(rows.len());
        let end = rows.len().min(begin + page.size.min(self.behaviour.page_limit));
        let results: Vec<Value> = rows[begin..end].iter().map(|row| page.select(row.clone())).collect();
        let mut answer = json!({"results": results});
        if end < rows.len() || self.behaviour.search_has_last_cursor {
            answer["cursor"] = json!(end.to_string());
        }
        self.count(&mut answer, rows.len(), page.cursor.is_none());
        Ok(answer)
    }
}

fn parse(text: &str) -> Result<Expression, String> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let expression = parse_any(&mut tokens)?;
    match tokens.next() {
        None => Ok(expression),
        Some(token) => Err(format!("{token:?} is where AND or OR is expected")),
    }
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

fn parse_any(tokens: &mut Tokens) -> Result<Expression, String> {
    let mut all = vec![parse_all(tokens)?];
    while tokens.next_if_eq(&Token::Or).is_some() {
        all.push(parse_all(tokens)?);
    }
    Ok(Expression::Or(all))
}

fn parse_all(tokens: &mut Tokens) -> Result<Expression, String> {
    let mut all = vec![parse_one(tokens)?];
    loop {
        if tokens.next_if_eq(&Token::And).is_some() || tokens.peek() == Some(&Token::Not) {
            all.push(parse_one(tokens)?);
        } else {
            return Ok(Expression::And(all));
        }
    }
}

fn parse_one(tokens: &mut Tokens) -> Result<Expression, String> {
    match tokens.next() {
        Some(Token::Not) => Ok(Expression::Not(Box::new(parse_one(tokens)?))),
        Some(Token::Term(term)) => Ok(Expression::Term(term)),
        Some(Token::Open) => {
            let inner = parse_any(tokens)?;
            tokens.next_if_eq(&Token::Close).map(|_| inner).ok_or_else(|| "a parenthesis is not closed".to_owned())
        }
        other => Err(format!("{other:?} is where a term is expected")),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&char) = chars.peek() {
        match char {
            ' ' => drop(chars.next()),
            '(' => {
                chars.next();
                tokens.push(Token::Open);
            }
            ')' => {
                chars.next();
                tokens.push(Token::Close);
            }
            '+' | '-' => return Err(format!("{char:?} at the beginning of a term is not escaped")),
            _ => tokens.push(word(&mut chars)?),
        }
    }
    Ok(tokens)
}

fn word(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, String> {
    let (mut field, mut pattern, mut is_quoted, mut is_plain) = (None, Vec::new(), false, true);
    while let Some(&char) = chars.peek() {
        if !is_quoted && matches!(char, ' ' | '(' | ')') {
            break;
        }
        chars.next();
        match char {
            '\\' => {
                is_plain = false;
                pattern.push(PatternPart::Literal(chars.next().ok_or("nothing is after a backslash")?));
            }
            '"' => (is_quoted, is_plain) = (!is_quoted, false),
            _ if is_quoted => pattern.push(PatternPart::Literal(char)),
            ':' if field.is_none() && !pattern.is_empty() => field = Some(literal(&std::mem::take(&mut pattern))),
            '*' => pattern.push(PatternPart::Any),
            '?' => pattern.push(PatternPart::One),
            _ if char == ':' || SPECIAL.contains(char) => return Err(format!("{char:?} is not escaped")),
            _ => pattern.push(PatternPart::Literal(char)),
        }
    }
    if is_quoted {
        return Err("a quote is not closed".to_owned());
    }
    Ok(match literal(&pattern).as_str() {
        "AND" if field.is_none() && is_plain => Token::And,
        "OR" if field.is_none() && is_plain => Token::Or,
        "NOT" if field.is_none() && is_plain => Token::Not,
        _ => Token::Term(Term { field, pattern }),
    })
}

fn literal(pattern: &[PatternPart]) -> String {
    let char = |part: &PatternPart| match part {
        PatternPart::Literal(char) => *char,
        PatternPart::One => '?',
        PatternPart::Any => '*',
    };
    pattern.iter().map(char).collect()
}

impl Expression {
    fn matches(&self, row: &Value, matches_words: bool) -> bool {
        match self {
            Expression::Term(term) => term.matches(row, matches_words),
            Expression::Not(inner) => !inner.matches(row, matches_words),
            Expression::And(all) => all.iter().all(|one| one.matches(row, matches_words)),
            Expression::Or(any) => any.iter().any(|one| one.matches(row, matches_words)),
        }
    }
}

impl Term {
    fn matches(&self, row: &Value, matches_words: bool) -> bool {
        let mut values = Vec::new();
        match &self.field {
            Some(field) => collect(row, &field.split('.').collect::<Vec<_>>(), &mut values),
            None => collect_all(row, &mut values),
        }
        values.iter().any(|value| self.is_value(value, matches_words))
    }

    fn is_value(&self, value: &str, matches_words: bool) -> bool {
        let value = value.to_lowercase();
        if is_match(&self.pattern, &value.chars().collect::<Vec<_>>()) {
            return true;
        }
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        let (wanted, there) = (words(&literal(&self.pattern)), words(&value));
        matches_words && !wanted.is_empty() && there.windows(wanted.len()).any(|part| part == wanted)
    }
}

fn is_match(pattern: &[PatternPart], value: &[char]) -> bool {
    match (pattern.split_first(), value.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((PatternPart::Any, rest)), _) => (0..=value.len()).any(|skip| is_match(rest, &value[skip..])),
        (Some(_), None) => false,
        (Some((PatternPart::One, rest)), Some((_, tail))) => is_match(rest, tail),
        (Some((PatternPart::Literal(char), rest)), Some((first, tail))) => {
            char.to_lowercase().eq(first.to_lowercase()) && is_match(rest, tail)
        }
    }
}

/// Collects the values of a field. Values of different entries of a list are independent of each other.
fn collect(value: &Value, field: &[&str], into: &mut Vec<String>) {
    match (value, field) {
        (Value::Array(entries), _) => entries.iter().for_each(|entry| collect(entry, field, into)),
        (Value::Object(object), [first, rest @ ..]) => {
            if let Some(inner) = object.get(*first) {
                collect(inner, rest, into);
            }
        }
        (Value::String(text), []) => into.push(text.clone()),
        (Value::Bool(_) | Value::Number(_), []) => into.push(value.to_string()),
        _ => {}
    }
}

fn collect_all(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Array(entries) => entries.iter().for_each(|entry| collect_all(entry, into)),
        Value::Object(object) => object.values().for_each(|inner| collect_all(inner, into)),
        Value::String(text) => into.push(text.clone()),
        other => into.push(other.to_string()),
    }
}
