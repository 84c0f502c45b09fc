//! Pure: decodes a YAML tree into a type that implements [`Deserialize`].
//!
//! It reads scalars as YAML 1.1 does, which the Go program accepts: a text may be written as a number, and `yes` is a
//! boolean. Where the type is not known, numbers that are not decimal stay texts. Errors contain a line and never any
//! text, which may be a token or a private key.

use std::collections::HashSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{Entry, Node, Value};

const TRUE: [&str; 11] = ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"];
const FALSE: [&str; 11] = ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"];

/// A value has another type than expected, a value is missing, or a key is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeError {
    /// Line of the innermost value with the error, from 1, if known.
    pub line: Option<usize>,
}

impl TypeError {
    fn at(self, line: usize) -> Self {
        Self { line: self.line.or(Some(line)) }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of another type than expected, or a key given twice")
    }
}

impl std::error::Error for TypeError {}

impl Error for TypeError {
    /// Drops the message, because it quotes the value.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self { line: None }
    }
}

/// Decodes the tree.
///
/// # Errors
/// A value does not fit the type.
pub(crate) fn decode<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, TypeError> {
    T::deserialize(NodeDeserializer(node))
}

#[derive(Clone, Copy)]
struct NodeDeserializer<'de>(&'de Node);

impl<'de> NodeDeserializer<'de> {
    /// Returns the text of a scalar.
    fn text(self) -> Result<&'de str, TypeError> {
        match &self.0.value {
            Value::Scalar { text, .. } => Ok(text.as_str()),
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.mismatch()),
        }
    }

    fn mismatch(self) -> TypeError {
        TypeError { line: Some(self.0.line) }
    }

    fn list(self) -> Result<Items<'de>, TypeError> {
        match &self.0.value {
            Value::List(items) => Ok(Items(items.iter())),
            Value::Null => Ok(Items([].iter())),
            Value::Scalar { .. } | Value::Map(_) => Err(self.mismatch()),
        }
    }

    fn map(self) -> Result<Entries<'de>, TypeError> {
        let entries = self.0.entries().ok_or_else(|| self.mismatch())?;
        Ok(Entries { rest: effective(entries).into_iter(), seen: HashSet::new(), value: None })
    }
}

/// Returns the entries without those that `<<` merges and another entry replaces. A later merged entry replaces an
/// earlier one.
fn effective(entries: &[Entry]) -> Vec<&Entry> {
    let own = entries.iter().filter(|entry| !entry.is_merged);
    let mut keys: HashSet<&str> = own.map(|entry| entry.key.as_str()).collect();
    let mut kept = Vec::new();
    for entry in entries.iter().rev() {
        if !entry.is_merged || keys.insert(&entry.key) {
            kept.push(entry);
        }
    }
    kept.reverse();
    kept
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = TypeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let visited = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::List(_) => visitor.visit_seq(self.list()?),
            Value::Map(_) => visitor.visit_map(self.map()?),
            Value::Scalar { text, plain: false } => visitor.visit_str(text),
            Value::Scalar { text, plain: true } => match text.as_str() {
                text if TRUE.contains(&text) => visitor.visit_bool(true),
                text if FALSE.contains(&text) => visitor.visit_bool(false),
                text => match (text.parse::<u64>(), text.parse::<i64>(), finite(text)) {
                    (Ok(number), ..) => visitor.visit_u64(number),
                    (_, Ok(number), _) => visitor.visit_i64(number),
                    (.., Some(number)) => visitor.visit_f64(number),
                    _ => visitor.visit_str(text),
                },
            },
        };
        visited.map_err(|error: TypeError| error.at(self.0.line))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match &self.0.value {
            Value::Scalar { text, .. } if TRUE.contains(&text.as_str()) => visitor.visit_bool(true),
            Value::Scalar { text, .. } if FALSE.contains(&text.as_str()) => visitor.visit_bool(false),
            _ => Err(self.mismatch()),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_str(self.text()?).map_err(|error: TypeError| error.at(self.0.line))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_seq(self.list()?).map_err(|error| error.at(self.0.line))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_map(self.map()?).map_err(|error| error.at(self.0.line))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        visitor.visit_enum(Variant(self.text()?)).map_err(|error| error.at(self.0.line))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

/// Returns the number if the text is a decimal fraction, and not `inf`, `nan` or a word.
fn finite(text: &str) -> Option<f64> {
    let is_number = text.chars().all(|char| char.is_ascii_digit() || "+-.eE".contains(char));
    text.parse().ok().filter(|number: &f64| is_number && number.is_finite())
}

/// The items of a list.
struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = TypeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, TypeError> {
        self.0.next().map(|node| seed.deserialize(NodeDeserializer(node))).transpose()
    }
}

/// The entries of a map.
struct Entries<'de> {
    rest: std::vec::IntoIter<&'de Entry>,
    /// The keys so far.
    seen: HashSet<&'de str>,
    /// The value of the last key.
    value: Option<&'de Node>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = TypeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeError> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        if !self.seen.insert(&entry.key) {
            return Err(TypeError { line: Some(entry.line) });
        }
        self.value = Some(&entry.node);
        let key: StrDeserializer<'_, TypeError> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|error| error.at(entry.line))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TypeError> {
        let node = self.value.take().ok_or(TypeError { line: None })?;
        seed.deserialize(NodeDeserializer(node)).map_err(|error| error.at(node.line))
    }
}

/// The name of a variant without fields.
struct Variant<'de>(&'de str);

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = TypeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), TypeError> {
        let name: StrDeserializer<'_, TypeError> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = TypeError;

    fn unit_variant(self) -> Result<(), TypeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, TypeError> {
        Err(TypeError { line: None })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, TypeError> {
        Err(TypeError { line: None })
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, TypeError> {
        Err(TypeError { line: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::yaml::{Aliases, parse_document};
    use serde_json::json;
    use std::collections::HashMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Probe {
        text: String,
        word: Option<String>,
        switch: bool,
        list: Vec<String>,
        choice: Option<Choice>,
        #[serde(flatten)]
        other: HashMap<String, serde_json::Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Choice {
        Always,
    }

    fn probe(text: &str) -> Result<Probe, TypeError> {
        let Ok(document) = parse_document(text, Aliases::Copied) else { panic!("YAML: {text}") };
        decode(&document)
    }

    #[test]
    fn a_text_may_be_written_as_a_number_or_a_boolean() {
        for (written, expected) in [("0123", "0123"), ("1e3", "1e3"), ("yes", "yes"), ("\"a b\"", "a b"), ("''", "")] {
            assert_eq!(probe(&format!("text: {written}")).unwrap().text, expected, "{written}");
        }
        assert_eq!(probe("word: ~").unwrap().word, None);
        assert_eq!(probe("word: '~'").unwrap().word.as_deref(), Some("~"));
    }

    #[test]
    fn booleans_are_words() {
        for (written, expected) in [("true", Ok(true)), ("yes", Ok(true)), ("Off", Ok(false)), ("'n'", Ok(false))] {
            assert_eq!(probe(&format!("switch: {written}")).map(|probe| probe.switch), expected, "{written}");
        }
        for written in ["1", "tRue", "[true]"] {
            assert_eq!(probe(&format!("\nswitch: {written}")), Err(TypeError { line: Some(2) }), "{written}");
        }
    }

    #[test]
    fn unknown_values_have_the_type_of_their_text() {
        let probe = probe("a: 7\nb: -7\nc: 1.5\nd: yes\ne: '7'\nf: nan\ng: {h: [~, x]}\ni: 1.2.3\n").unwrap();
        let expected = json!({
            "a": 7, "b": -7, "c": 1.5, "d": true, "e": "7", "f": "nan", "g": {"h": [null, "x"]}, "i": "1.2.3",
        });
        assert_eq!(json!(probe.other), expected);
    }

    #[test]
    fn lists_maps_and_variants_are_read_and_null_is_an_empty_one() {
        let read = probe("list: [a, 1]\nchoice: Always\n").unwrap();
        assert_eq!((read.list, read.choice), (vec!["a".to_owned(), "1".to_owned()], Some(Choice::Always)));
        assert_eq!(probe("list:\n").unwrap(), Probe::default());
        assert_eq!(probe("").unwrap(), Probe::default());
    }

    #[test]
    fn an_entry_replaces_a_merged_one() {
        let read = probe("base: &b {text: x, word: y}\n<<: *b\ntext: z\n").unwrap();
        assert_eq!((read.text.as_str(), read.word.as_deref()), ("z", Some("y")));
        let read = probe("base: [&b {text: x}, &c {text: y, word: w}]\n<<: [*b, *c]\n").unwrap();
        assert_eq!((read.text.as_str(), read.word.as_deref()), ("x", Some("w")), "the first map of the list");
    }

    #[test]
    fn an_error_has_the_line_of_the_value_and_not_its_text() {
        for (text, line) in [
            ("text: [secret]", 1),
            ("\nlist:\n  - a\n  - {secret: 1}\n", 4),
            ("\nlist: secret\n", 2),
            ("text: a\nword: b\ntext: secret\n", 3),
            ("other: {a: 1, a: secret}\n", 1),
            ("\n\nchoice: secret\n", 3),
            ("[secret]", 1),
        ] {
            let error = probe(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{text}");
        }
    }
}
