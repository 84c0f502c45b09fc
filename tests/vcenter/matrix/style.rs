//! Answers in other styles and unusual answers. Each function rewrites one answer.

const TYPE: &str = " xsi:type=\"";

/// Uses other XML prefixes.
pub fn other_prefixes(body: &str) -> String {
    let body = body.replace("soapenv:", "S:").replace("xmlns:soapenv", "xmlns:S");
    body.replace("xsi:type", "i:type").replace("xmlns:xsi", "xmlns:i")
}

/// Removes all XML types.
pub fn without_types(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(TYPE) {
        out.push_str(before);
        rest = after.split_once('"').map_or("", |(_, after)| after);
    }
    out + rest
}

/// Adds elements of an unknown future version.
pub fn unknown_elements(body: &str) -> String {
    let unknown = "<fromTheFuture xsi:type=\"FutureInfo\"><deep at=\"1\"><deeper/></deep>text</fromTheFuture>";
    let mut body = body.to_owned();
    for element in ["<returnval xsi:type=\"UpdateSet\">", "<objectSet xsi:type=\"ObjectUpdate\">", "<changeSet>"] {
        body = body.replace(element, &format!("{element}{unknown}"));
    }
    body
}

/// Puts the XML type before the object's class, and uses other quotes.
pub fn other_order(body: &str) -> String {
    let body = body.replace(" xsi:type=\"ManagedObjectReference\">", " xsi:type='ManagedObjectReference' >");
    body.replace("<obj type=", "<obj  serverGuid='x'\n type=").replace("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "")
}

/// Uses entities and character data for letters that need none.
pub fn character_data(body: &str) -> String {
    body.replace(">guest.net<", "><![CDATA[guest.net]]><")
        .replace(">poweredOn<", ">&#112;owered<![CDATA[O]]>n<")
        .replace("&quot;", "&#34;")
        .replace(">10.2.0.", "><![CDATA[10.]]>2&#x2E;0.")
}

/// Replaces the body element in the envelope.
pub fn another_envelope(body: &str) -> String {
    body.replace("soapenv:Body", "soapenv:Corpse")
}

/// Returns the first half of the document.
pub fn half(body: &str) -> String {
    let length = body.chars().count() / 2;
    body.chars().take(length).collect()
}

/// Returns bytes that are no document.
pub fn garbage(_: &str) -> String {
    "\u{0}\u{1}<<<&;]]>".repeat(50)
}

/// Turns the answer into an answer to another call.
pub fn another_answer(body: &str) -> String {
    body.replace("WaitForUpdatesExResponse", "CurrentTimeResponse")
}

/// Repeats every object of a page, so that an existing object enters again.
pub fn repeated(body: &str) -> String {
    let (start, end) = ("<objectSet", "</objectSet>");
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(start)
        && let Some((object, after)) = after.split_once(end)
    {
        out.push_str(&format!("{before}{start}{object}{end}{start}{object}{end}"));
        rest = after;
    }
    out + rest
}

/// Reports entering objects as modified.
pub fn modify_unknown(body: &str) -> String {
    body.replace(">enter<", ">modify<")
}

/// Reports unset properties as removed.
pub fn removed(body: &str) -> String {
    body.replace("assign</op></changeSet>", "remove</op></changeSet>")
}

/// Reports unset properties as indirectly removed.
pub fn indirectly_removed(body: &str) -> String {
    body.replace("assign</op></changeSet>", "indirectRemove</op></changeSet>")
}

/// Uses unknown kinds and operations of updates.
pub fn unknown_kinds(body: &str) -> String {
    body.replace(">modify<", ">transmogrify<").replace(">enter<", ">transmogrify<")
}

/// Reports first that unwatched objects leave.
pub fn strangers_leave(body: &str) -> String {
    let leave = "<objectSet xsi:type=\"ObjectUpdate\"><kind>leave</kind><obj type=\"VirtualMachine\">vm-999</obj></objectSet>\
                 <objectSet xsi:type=\"ObjectUpdate\"><kind>leave</kind><obj type=\"Folder\">group-999</obj></objectSet>";
    body.replace("</filter>", &format!("</filter>{leave}"))
}

/// Returns `null` for every empty list.
pub fn null_lists(body: &str) -> String {
    body.replace("[]", "null")
}

/// Returns an answer with the value `null`.
pub fn null_value(_: &str) -> String {
    "{\"value\":null}".to_owned()
}
