//! Pure: lists that turn named items on and off, such as `--controllers` and `--webhooks`. Mirrors
//! `IsControllerEnabled` of `k8s.io/controller-manager` and `ResolveAllControllerNames` of `k8s.io/cloud-provider`.

/// The item for all names that are on by default.
const ALL: &str = "*";

/// Replaces every alias in the list by its name, also after `-`. `aliases` has pairs of alias and name.
pub fn resolved(list: &[String], aliases: &[(&str, &str)]) -> Vec<String> {
    let name_of =
        |word: &str| aliases.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, name)| *name).to_owned();
    let item = |item: &str| match item.strip_prefix('-') {
        Some(word) => format!("-{}", name_of(word)),
        None => name_of(item),
    };
    items(list).map(item).collect()
}

/// Returns true if the first mention turns `name` on. A name that the list omits is on if the list has `*` and
/// `is_on_by_default` is true.
pub fn is_selected(name: &str, list: &[String], is_on_by_default: bool) -> bool {
    let first_mention = items(list).find_map(|item| match item.strip_prefix('-') {
        Some(off) => (off == name).then_some(false),
        None => (item == name).then_some(true),
    });
    first_mention.unwrap_or_else(|| is_on_by_default && items(list).any(|item| item == ALL))
}

/// Returns the unknown names, without `-`.
pub fn unknown<'a>(list: &'a [String], known: &[&str]) -> Vec<&'a str> {
    let names = items(list).map(|item| item.strip_prefix('-').unwrap_or(item));
    names.filter(|name| *name != ALL && !known.contains(name)).collect()
}

fn items(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|item| item.trim()).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Aliases<'a> = &'a [(&'a str, &'a str)];

    fn list(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    // vectors: O-30–O-36
    #[test]
    fn the_first_mention_of_a_name_decides() {
        let cases = [
            ("O-30", "bravo", "alpha,bravo,-charlie", true),
            ("O-31", "charlie", "alpha,bravo,-charlie", false),
            ("O-32", "alpha", "*", true),
            ("O-33", "delta", "*", false),
            ("O-34", "alpha", "*,-charlie", true),
            ("O-35", "charlie", "*,-charlie", false),
            ("O-36", "foxtrot", "alpha,bravo,-charlie", false),
            ("on, then off", "alpha", "alpha,-alpha", true),
            ("off, then on", "alpha", "-alpha,alpha,*", false),
            ("off by default, named", "delta", "*,delta", true),
            ("an empty list", "alpha", "", false),
        ];
        for (case, name, typed, expected) in cases {
            let is_on_by_default = !["delta", "echo"].contains(&name);
            assert_eq!(is_selected(name, &list(typed), is_on_by_default), expected, "{case}");
        }
    }

    // vectors: O-24, O-44
    #[test]
    fn aliases_are_names_also_behind_a_minus() {
        let services = [("service", "service-controller"), ("route", "route-controller")];
        let colours = [("crimson", "red"), ("pink", "red"), ("ultramarine", "blue")];
        let cases: [(&str, Aliases<'_>, &str, &str); 2] = [
            (
                "O-24",
                &services,
                "service-controller,-service,route,-cloud-node-lifecycle-controller",
                "service-controller,-service-controller,route-controller,-cloud-node-lifecycle-controller",
            ),
            ("O-44", &colours, "green,-crimson,ultramarine,-pink", "green,-red,blue,-red"),
        ];
        for (case, aliases, typed, expected) in cases {
            assert_eq!(resolved(&list(typed), aliases), list(expected), "{case}");
        }
    }

    /// The known names are red, green and blue. Their defaults do not matter here.
    // vectors: O-40–O-42
    #[test]
    fn unknown_names_are_told_without_their_sign() {
        let aliases = [
            ("crimson-controller", "red-controller"),
            ("pink-controller", "red-controller"),
            ("ultramarine-controller", "blue-controller"),
        ];
        let colours = ["red-controller", "green-controller", "blue-controller"];
        let cases: [(&str, &[&str], &str, &[&str]); 9] = [
            ("O-40 all, nothing known", &[], "*", &[]),
            ("O-40 empty", &colours, "", &[]),
            ("O-40 blue", &colours, "blue-controller", &[]),
            ("O-40 all but red, and blue", &colours, "*,-red-controller,blue-controller", &[]),
            ("O-40 green", &colours, "green-controller", &[]),
            ("O-40 aliases", &colours, "ultramarine-controller,-pink-controller", &[]),
            ("O-41", &[], "red-controller", &["red-controller"]),
            ("O-42", &colours, "crimson-controller,grey-controller", &["grey-controller"]),
            ("behind a minus", &colours, "-grey-controller,*", &["grey-controller"]),
        ];
        for (case, known, typed, expected) in cases {
            assert_eq!(unknown(&resolved(&list(typed), &aliases), known), *expected, "{case}");
        }
    }

    // vectors: O-60–O-64
    #[test]
    fn webhooks_are_chosen_as_controllers_are() {
        let cases: [(&str, &str, &[&str]); 6] = [
            ("O-60", "webhook-a,webhook-b", &["webhook-a", "webhook-b"]),
            ("O-61", "webhook-a", &["webhook-a"]),
            ("O-62", "webhook-a,-webhook-b", &["webhook-a"]),
            ("O-63", "-webhook-b", &[]),
            ("O-64", "*", &["webhook-a", "webhook-b"]),
            ("none are asked for", "", &[]),
        ];
        for (case, typed, expected) in cases {
            let on: Vec<_> =
                ["webhook-a", "webhook-b"].into_iter().filter(|name| is_selected(name, &list(typed), true)).collect();
            assert_eq!(on, expected, "{case}");
        }
    }
}
