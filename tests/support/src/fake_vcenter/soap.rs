//! The SOAP operations, except for `WaitForUpdatesEx`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::World;
use super::collector::{Collector, Filter, properties};
use super::fault::Fault;
use super::inventory::{Ref, Val};
use super::model::{Denial, Unreadable};
use super::selection::Spec;
use super::session::{Session, View};
use super::xml::{Element, escape};

/// Content of `/sdk/vimServiceVersions.xml`.
pub(super) const VERSIONS: &str = r#"<?xml version="1.0" encoding="UTF-8" ?>
<namespaces version="1.0"><namespace><name>urn:vim25</name><version>8.0.3.0</version><priorVersions>
<version>8.0.2.0</version><version>7.0.3.2</version><version>6.7.3</version><version>6.7</version><version>4.0</version>
</priorVersions></namespace></namespaces>"#;

/// Page size of a read, in objects.
const READ_PAGE: usize = 100;

/// Result of an operation: the content of its response element, and a cookie if it made a session.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) content: String,
    pub(super) new_session: Option<String>,
}

impl From<String> for Done {
    fn from(content: String) -> Self {
        Self { content, new_session: None }
    }
}

pub(super) fn envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n{body}\n</soapenv:Body>\n\
         </soapenv:Envelope>"
    )
}

fn returned(reference: &Ref) -> String {
    reference.element("returnval")
}

fn all_returned<'a>(references: impl IntoIterator<Item = &'a Ref>) -> Done {
    references.into_iter().map(returned).collect::<String>().into()
}

impl World {
    /// Serves one operation for the session of this cookie.
    pub(super) fn serve(&mut self, call: &Element, cookie: Option<&str>) -> Result<Done, Fault> {
        match call.name.as_str() {
            "RetrieveServiceContent" => return Ok(self.service_content().into()),
            "Login" => return self.login(call),
            "RetrievePropertiesEx" => return self.read(call, cookie),
            _ => {}
        }
        let this = call.child("_this").map(Element::reference).unwrap_or_default();
        let found = match call.name.as_str() {
            "FindAllByUuid" | "FindAllByDnsName" | "FindAllByIp" => Some(self.find(call)),
            _ => None,
        };
        let id = self.next_id();
        let takes_unreadable = self.unreadable == Unreadable::Kept;
        let Self { sessions, inventory, .. } = self;
        let session = cookie.and_then(|cookie| sessions.get_mut(cookie)).ok_or_else(Fault::not_authenticated)?;
        match call.name.as_str() {
            "Logout" => {
                cookie.map(|cookie| sessions.remove(cookie));
                Ok(Done::default())
            }
            "FindAllByUuid" | "FindAllByDnsName" | "FindAllByIp" => Ok(all_returned(&found.unwrap_or_default())),
            "CreateListView" => {
                let view = Ref::new("ListView", &id);
                let members = call.all("obj").map(Element::reference);
                let members = members.filter(|member| inventory.objects.contains_key(member)).collect();
                session.views.insert(view.clone(), View(members));
                Ok(returned(&view).into())
            }
            "ModifyListView" => {
                let Some(View(members)) = session.views.get_mut(&this) else { return Err(unknown(&this)) };
                for object in call.all("remove") {
                    members.remove(&object.reference());
                }
                let is_resolved = |object: &Ref| {
                    inventory.objects.get(object).is_some_and(|found| found.is_readable || takes_unreadable)
                };
                let added: BTreeSet<Ref> = call.all("add").map(Element::reference).collect();
                let (added, unresolved): (BTreeSet<Ref>, BTreeSet<Ref>) = added.into_iter().partition(is_resolved);
                members.extend(added);
                Ok(all_returned(&unresolved))
            }
            "HasPrivilegeOnEntity" => {
                // A session that does not exist has no privileges. If the account may not even view the object, the
                // answer is a fault.
                let is_own = call.text_of("sessionId") == session.key;
                let entity = call.child("entity").map(Element::reference).unwrap_or_default();
                let object = inventory.objects.get(&entity).ok_or_else(|| unknown(&entity))?;
                let granted =
                    call.all("privId").map(|_| format!("<returnval>{}</returnval>", is_own && object.is_readable));
                Ok(granted.collect::<String>().into())
            }
            "DestroyView" => session.views.remove(&this).map(|_| Done::default()).ok_or_else(|| unknown(&this)),
            _ => collect(session, call, &this, id, inventory),
        }
    }

    fn login(&mut self, call: &Element) -> Result<Done, Fault> {
        if (call.text_of("userName"), call.text_of("password")) != (self.user.as_str(), self.password.as_str()) {
            self.counts.soap_refusals += 1;
            return Err(Fault::new("InvalidLogin"));
        }
        let (key, cookie) = (self.next_id(), format!("{:0>40}", self.next_id().replace('-', "")));
        let content = format!("<returnval xsi:type=\"UserSession\">{}</returnval>", user_session(&key, &self.user));
        self.sessions.insert(cookie.clone(), Session { key, ..Session::default() });
        self.last_cookie.clone_from(&cookie);
        self.last_cookie_since = None;
        self.counts.soap_logins += 1;
        self.counts.most_soap_sessions = self.counts.most_soap_sessions.max(self.sessions.len());
        Ok(Done { content, new_session: Some(cookie) })
    }

    /// Counts a call with a cookie other than that of the last login. A call that began before the login may still wait
    /// for its connection, so such calls count from a second after the first call with the last cookie.
    pub(super) fn note_cookie(&mut self, cookie: Option<&str>) {
        let Some(cookie) = cookie else { return };
        if cookie == self.last_cookie {
            self.last_cookie_since.get_or_insert_with(Instant::now);
        } else if self.last_cookie_since.is_some_and(|since| since.elapsed() > Duration::from_secs(1)) {
            self.counts.old_cookies += 1;
        }
    }

    /// Reads properties. It needs no session, but without one everything except for `currentSession` is unreadable.
    fn read(&mut self, call: &Element, cookie: Option<&str>) -> Result<Done, Fault> {
        let spec = Spec::read(call.child("specSet").unwrap_or(&Element::default()))?;
        let none = std::collections::BTreeMap::new();
        let session = cookie.and_then(|cookie| self.sessions.get(cookie));
        let views = session.map_or(&none, |session| &session.views);
        if let Some(missing) = spec.missing_start(&self.inventory, views) {
            return Err(unknown(missing));
        }
        let mut objects = Vec::new();
        for start in spec.starts().filter(|start| start.kind == "SessionManager") {
            let current = session.map_or(String::new(), |session| {
                let user = user_session(&session.key, &self.user);
                format!("<propSet><name>currentSession</name><val xsi:type=\"UserSession\">{user}</val></propSet>")
            });
            objects.push(format!("<objects>{}{current}</objects>", start.element("obj")));
        }
        for (reference, object) in spec.select(&self.inventory, views) {
            let mut object = (*object).clone();
            object.is_readable &= session.is_some();
            let content = properties(&object, &spec.paths_of(&reference), "propSet");
            objects.push(format!("<objects>{}{content}</objects>", reference.element("obj")));
        }
        for start in spec.starts() {
            if let Some(object) = self.inventory.objects.get(start).filter(|object| !object.is_readable) {
                match self.denial {
                    Denial::LeftOut => continue,
                    Denial::Fault | Denial::FaultOf8 => return Err(self.denial.fault(&start.kind, &start.id)),
                    Denial::MissingSet => {}
                }
                let content = properties(object, &spec.paths_of(start), "propSet");
                objects.push(format!("<objects>{}{content}</objects>", start.element("obj")));
            }
        }
        let wanted = call.child("options").map_or("", |options| options.text_of("maxObjects"));
        let page = wanted.parse().unwrap_or(READ_PAGE).min(READ_PAGE);
        let token = self.next_id();
        let pages = cookie.and_then(|cookie| self.sessions.get_mut(cookie)).map(|session| &mut session.pages);
        Ok(read_page(objects, page, token, pages).into())
    }

    fn find(&self, call: &Element) -> Vec<Ref> {
        let is_instance = call.is_true("instanceUuid");
        let uuid_path = if is_instance { "config.instanceUuid" } else { "config.uuid" };
        let matches = |held: &super::inventory::Object| {
            let text = |path: &str| held.properties.get(path).map_or("", Val::as_text);
            match call.name.as_str() {
                "FindAllByUuid" => text(uuid_path).eq_ignore_ascii_case(call.text_of("uuid")),
                "FindAllByDnsName" => text("guest.hostName") == call.text_of("dnsName"),
                _ => matches!(held.properties.get("guest.net"), Some(Val::Nics(nics))
                    if nics.iter().flatten().any(|address| address == call.text_of("ip"))),
            }
        };
        let objects = &self.inventory.objects;
        let all: Vec<_> = match call.name.as_str() {
            "FindAllByUuid" => {
                let found = self.inventory.with_uuid(call.text_of("uuid")).iter();
                found.filter_map(|reference| objects.get(reference)).collect()
            }
            _ => objects.values().filter(|object| object.reference.kind == "VirtualMachine").collect(),
        };
        let found = all.iter().filter(|object| object.is_readable && matches(object));
        found.map(|object| object.reference.clone()).collect()
    }

    fn service_content(&self) -> String {
        let manager = |element: &str, kind: &str, id: &str| Ref::new(kind, id).element(element);
        let about = [
            ("name", "VMware vCenter Server"),
            ("fullName", "VMware vCenter Server 8.0.3 build-24022515"),
            ("vendor", "VMware, Inc."),
            ("version", "8.0.3"),
            ("build", "24022515"),
            ("osType", "linux-x64"),
            ("productLineId", "vpx"),
            ("apiType", "VirtualCenter"),
            ("apiVersion", "8.0.3.0"),
            ("instanceUuid", &self.instance_uuid),
        ];
        let about: String =
            about.iter().map(|(name, value)| format!("<{name} xsi:type=\"xsd:string\">{value}</{name}>")).collect();
        let parts = [
            manager("rootFolder", "Folder", "group-d1"),
            manager("propertyCollector", "PropertyCollector", "propertyCollector"),
            manager("viewManager", "ViewManager", "ViewManager"),
            format!("<about xsi:type=\"AboutInfo\">{about}</about>"),
            manager("setting", "OptionManager", "VpxSettings"),
            manager("authorizationManager", "AuthorizationManager", "AuthorizationManager"),
            manager("sessionManager", "SessionManager", "SessionManager"),
            manager("eventManager", "EventManager", "EventManager"),
            manager("searchIndex", "SearchIndex", "SearchIndex"),
        ];
        format!("<returnval xsi:type=\"ServiceContent\">{}</returnval>", parts.concat())
    }
}

/// Serves the operations of collectors, and further pages of reads.
fn collect(
    session: &mut Session,
    call: &Element,
    this: &Ref,
    id: String,
    inventory: &super::inventory::Inventory,
) -> Result<Done, Fault> {
    match call.name.as_str() {
        "CreatePropertyCollector" => {
            session.collectors.insert(id.clone(), Collector::new());
            Ok(returned(&Ref::new("PropertyCollector", &id)).into())
        }
        "DestroyPropertyCollector" => {
            session.collectors.remove(&this.id).map(|_| Done::default()).ok_or_else(|| unknown(this))
        }
        "CreateFilter" => {
            let spec = Spec::read(call.child("spec").unwrap_or(&Element::default()))?;
            if let Some(missing) = spec.missing_start(inventory, &session.views) {
                return Err(unknown(missing));
            }
            let collector = session.collectors.get_mut(&this.id).ok_or_else(|| unknown(this))?;
            if collector.filter.is_some() {
                return Err(Fault::new("NotSupported"));
            }
            collector.filter = Some(Filter { id: id.clone(), spec });
            Ok(returned(&Ref::new("PropertyFilter", &id)).into())
        }
        "CancelWaitForUpdates" => {
            session.collectors.get_mut(&this.id).ok_or_else(|| unknown(this))?.cancels += 1;
            Ok(Done::default())
        }
        "ContinueRetrievePropertiesEx" => {
            let objects = session.pages.remove(call.text_of("token"));
            let objects = objects.ok_or_else(|| Fault::new("InvalidArgument").field("invalidProperty", "token"))?;
            Ok(read_page(objects, READ_PAGE, id, Some(&mut session.pages)).into())
        }
        method => Err(Fault::new("InvalidRequest").field("method", method)),
    }
}

fn read_page(
    mut objects: Vec<String>,
    page: usize,
    token: String,
    pages: Option<&mut std::collections::BTreeMap<String, Vec<String>>>,
) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let rest = objects.split_off(page.clamp(1, objects.len()));
    let next = match pages.filter(|_| !rest.is_empty()) {
        Some(pages) => {
            pages.insert(token.clone(), rest);
            format!("<token xsi:type=\"xsd:string\">{}</token>", escape(&token))
        }
        None => String::new(),
    };
    format!("<returnval xsi:type=\"RetrieveResult\">{next}{}</returnval>", objects.concat())
}

fn user_session(key: &str, user: &str) -> String {
    format!(
        "<key xsi:type=\"xsd:string\">{key}</key><userName xsi:type=\"xsd:string\">{}</userName>\
         <fullName>ccm</fullName><loginTime>2026-03-01T10:00:00.1Z</loginTime>\
         <lastActiveTime>2026-03-01T10:00:00.1Z</lastActiveTime><locale>en</locale><messageLocale>en</messageLocale>",
        escape(user)
    )
}

pub(super) fn unknown(reference: &Ref) -> Fault {
    Fault::managed_object_not_found(&reference.kind, &reference.id)
}

/// Removes an object, from the views, too.
pub(super) fn remove(world: &mut World, reference: &Ref) -> Option<Arc<super::inventory::Object>> {
    leave_views(world, reference);
    world.inventory.objects.remove(reference)
}

/// Removes an object from every view.
pub(super) fn leave_views(world: &mut World, reference: &Ref) {
    for session in world.sessions.values_mut() {
        for view in session.views.values_mut() {
            view.0.remove(reference);
        }
    }
}
