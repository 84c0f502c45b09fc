//! The identity of a vCenter, and its sessions: connect, log in, log out, check the session.

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use super::call::{VimCall, nothing, return_value, return_values};
use super::decoder::{DecodeError, Decoder};
use super::envelope::RequestBody;
use super::value::read_reference;
use super::{Client, Error, FilterSpec, MoRef, version};
use crate::clients::http::{self, Method, Request};
use crate::clients::token::Token;
use crate::clients::token::signature::{Ids, KeyReference, escaped, escaped_attribute, sign};

/// The well-known objects of a vCenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceContent {
    /// The default property collector, shared by all calls of the session.
    pub property_collector: MoRef,
    /// The object that creates views.
    pub view_manager: MoRef,
    /// The object that finds VMs.
    pub search_index: MoRef,
    /// The object that logs in and out.
    pub session_manager: MoRef,
    /// The object that manages permissions; `None` until the server reports it. Every vCenter reports this object.
    pub authorization_manager: Option<MoRef>,
    /// The root of the inventory; `None` until the server reports it. Every vCenter reports this object.
    pub root_folder: Option<MoRef>,
    /// Product and versions.
    pub about: AboutInfo,
}

/// The server's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AboutInfo {
    /// For example `VMware vCenter Server 8.0.3 build-24022515`.
    pub full_name: String,
    /// `VirtualCenter`, or `HostAgent` for an ESXi host.
    pub api_type: String,
    /// The version of the API, for example `8.0.3.0`.
    pub api_version: String,
    /// The identity of this vCenter, which stays the same after restarts and renaming.
    pub instance_uuid: Option<String>,
}

impl AboutInfo {
    /// Whether the API is at least this version. Missing or malformed parts count as 0.
    pub fn is_api_at_least(&self, wanted: [u32; 4]) -> bool {
        let mut have = [0; 4];
        for (slot, part) in have.iter_mut().zip(self.api_version.split('.')) {
            *slot = part.parse().unwrap_or(0);
        }
        have >= wanted
    }
}

impl ServiceContent {
    /// Returns the content with the ids that all vCenters use, for the time until the server reports its own ids.
    pub(super) fn with_fixed_ids() -> Self {
        Self {
            property_collector: MoRef::new("PropertyCollector", "propertyCollector"),
            view_manager: MoRef::new("ViewManager", "ViewManager"),
            search_index: MoRef::new("SearchIndex", "SearchIndex"),
            session_manager: MoRef::new("SessionManager", "SessionManager"),
            authorization_manager: None,
            root_folder: None,
            about: AboutInfo::default(),
        }
    }
}

impl Client {
    /// Negotiates a version and reads the server's description. Needs no session, and keeps an existing session.
    ///
    /// # Errors
    /// [`Error::NotVcenter`] if the peer is an ESXi host or another service.
    pub async fn connect(&self) -> Result<ServiceContent, Error> {
        let version = self.fetch_version().await?;
        self.state().version = version;
        let content = self.fetch_content().await?;
        self.state().content = content.clone();
        Ok(content)
    }

    /// Checks that the server answers, with one call that needs no session and leaves this client's state unchanged.
    pub async fn probe(&self) -> Result<(), Error> {
        self.fetch_content().await.map(drop)
    }

    async fn fetch_content(&self) -> Result<ServiceContent, Error> {
        let body = RequestBody::of(&MoRef::new("ServiceInstance", "ServiceInstance"));
        let contents = self
            .read("RetrieveServiceContent", body, |decoder| return_values(decoder, |decoder, _| read_content(decoder)))
            .await?;
        let missing = || Error::NotVcenter(self.endpoint().to_owned(), "an empty service".to_owned());
        let content = contents.into_iter().next().ok_or_else(missing)?;
        if content.about.api_type != "VirtualCenter" {
            let found = format!("{} ({})", content.about.full_name, content.about.api_type);
            return Err(Error::NotVcenter(self.endpoint().to_owned(), found));
        }
        Ok(content)
    }

    /// Logs in, after dropping the cookie of an earlier session.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for rejected credentials. Repeated attempts lock the account.
    pub async fn login(&self, user: &str, password: &SecretString) -> Result<(), Error> {
        let mut body = RequestBody::of(&self.content().session_manager);
        body.text("userName", user);
        body.text("password", password.expose_secret());
        self.open_session("Login", body).await
    }

    /// Logs in with a token, signed with the key of the token, after dropping the cookie of an earlier session.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for an expired or rejected token.
    pub async fn login_by_token(&self, token: &Token, now: Timestamp) -> Result<(), Error> {
        let this = self.content().session_manager;
        let content = format!(
            "<LoginByToken xmlns=\"urn:vim25\"><_this type=\"{}\">{}</_this></LoginByToken>",
            escaped_attribute(this.kind()),
            escaped(this.id())
        );
        let signed = sign(&KeyReference::Token(token), &content, now, &Ids::fresh()).map_err(|error| {
            http::Error::Configuration { endpoint: self.endpoint().to_owned(), message: error.to_string() }
        })?;
        self.open_session("LoginByToken", RequestBody::of_signed(signed)).await
    }

    /// Opens a session as a user who is already logged in, after dropping the cookie of an earlier session. The ticket
    /// of that user's session (`AcquireCloneTicket`) is valid for one use.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for a ticket that is unknown, used or expired.
    pub async fn clone_session(&self, ticket: &SecretString) -> Result<(), Error> {
        let mut body = RequestBody::of(&self.content().session_manager);
        body.text("cloneTicket", ticket.expose_secret());
        self.open_session("CloneSession", body).await
    }

    async fn open_session(&self, method: &'static str, body: RequestBody) -> Result<(), Error> {
        // Logs in without a cookie: the simulator answers InvalidLogin to a login with the cookie of a live session.
        self.forget_session();
        let call = VimCall { method, timeout: self.inner.timeouts.login, repeatable: false };
        match self.call(call, body, read_session_key).await {
            Ok(key) => {
                self.state().session_key = key.map(SecretString::from);
                Ok(())
            }
            Err(error) => {
                if !matches!(error, Error::Fault { .. }) {
                    // Tries to log out, because the server may have opened a session even if its answer is unusable.
                    let _ = self.logout().await;
                }
                // Older servers set a useless cookie even if they refuse the login.
                self.forget_session();
                Err(error)
            }
        }
    }

    /// Whether the session has this privilege on the root folder; `None` if the server does not report the session key,
    /// the authorization manager, the root folder or the result. Servers do not report whether the privilege propagates
    /// to child objects.
    pub async fn has_privilege_on_root(&self, privilege: &str) -> Result<Option<bool>, Error> {
        let ServiceContent { authorization_manager, root_folder, .. } = self.content();
        let key = self.state().session_key.clone();
        let Some(manager) = authorization_manager else { return Ok(None) };
        let Some(root) = root_folder else { return Ok(None) };
        let Some(key) = key else { return Ok(None) };
        let mut body = RequestBody::of(&manager);
        body.reference("entity", &root);
        body.text("sessionId", key.expose_secret());
        body.text("privId", privilege);
        let answer = |decoder: &mut Decoder<'_>| return_value(decoder, |decoder, _| decoder.text());
        match self.read("HasPrivilegeOnEntity", body, answer).await {
            Ok(answer) => Ok(answer.map(|text| matches!(text.trim(), "true" | "1"))),
            // An account without permission to see the folder has no privilege on the folder.
            Err(error) if error.is_no_permission() => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }

    /// Ends the session with its collectors, filters, views and waits, within `Timeouts::logout`. The cookie is dropped
    /// even if the call fails. The server then drops the session after its idle time.
    pub async fn logout(&self) -> Result<(), Error> {
        if self.state().cookie.is_none() {
            return Ok(());
        }
        let body = RequestBody::of(&self.content().session_manager);
        let call = VimCall { method: "Logout", timeout: self.inner.timeouts.logout, repeatable: false };
        let result = self.call(call, body, nothing).await;
        self.forget_session();
        match result {
            Err(error) if error.is_not_authenticated() => Ok(()),
            other => other,
        }
    }

    /// Drops the cookie and the key of the session. Nothing is sent to the server.
    pub fn forget_session(&self) {
        let mut state = self.state();
        (state.cookie, state.session_key) = (None, None);
    }

    /// Whether the server still has the session. Unlike `SessionIsActive`, reading `currentSession` needs no privilege.
    pub async fn is_logged_in(&self) -> Result<bool, Error> {
        if self.state().cookie.is_none() {
            return Ok(false);
        }
        let spec = FilterSpec::of_object(&self.content().session_manager, &["currentSession"]);
        let objects = match self.retrieve_properties(&spec).await {
            // Without a session, vCenter omits the property. The fault has the same meaning.
            Err(error) if error.is_not_authenticated() => return Ok(false),
            answer => answer?,
        };
        Ok(objects.iter().any(|object| object.property("currentSession").is_some()))
    }

    /// Returns the session cookie without its quotes; `None` if there is no cookie. vCenter 8.0U3 and later accepts the
    /// result as a REST session id.
    pub fn session_secret(&self) -> Option<SecretString> {
        let cookie = self.state().cookie.clone()?;
        Some(SecretString::from(cookie.expose_secret().trim_matches('"').to_owned()))
    }

    async fn fetch_version(&self) -> Result<String, Error> {
        let timeout = self.inner.timeouts.call;
        let request = Request::new(Method::GET, "/sdk/vimServiceVersions.xml", "vimServiceVersions", timeout);
        let response = self.inner.http.send(request).await?;
        // Without a usable list of versions, returns the version that every supported server has.
        if !response.is_success() {
            return Ok(version::PREFERRED.to_owned());
        }
        let offered = version::read_offered(&String::from_utf8_lossy(&response.body)).unwrap_or_default();
        Ok(version::choose(&offered))
    }
}

pub(super) fn read_content(decoder: &mut Decoder<'_>) -> Result<ServiceContent, DecodeError> {
    let mut content = ServiceContent::with_fixed_ids();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "propertyCollector" => content.property_collector = read_reference(decoder, &part)?,
            "viewManager" => content.view_manager = read_reference(decoder, &part)?,
            "searchIndex" => content.search_index = read_reference(decoder, &part)?,
            "sessionManager" => content.session_manager = read_reference(decoder, &part)?,
            "authorizationManager" => content.authorization_manager = Some(read_reference(decoder, &part)?),
            "rootFolder" => content.root_folder = Some(read_reference(decoder, &part)?),
            "about" => content.about = read_about(decoder)?,
            _ => decoder.skip()?,
        }
    }
    Ok(content)
}

fn read_session_key(decoder: &mut Decoder<'_>) -> Result<Option<String>, DecodeError> {
    let keys = return_values(decoder, |decoder, _| {
        let mut key = None;
        while let Some(part) = decoder.next_child()? {
            match part.name {
                "key" => key = Some(decoder.text()?).filter(|key| !key.is_empty()),
                _ => decoder.skip()?,
            }
        }
        Ok(key)
    })?;
    Ok(keys.into_iter().flatten().next())
}

fn read_about(decoder: &mut Decoder<'_>) -> Result<AboutInfo, DecodeError> {
    let mut about = AboutInfo::default();
    while let Some(part) = decoder.next_child()? {
        match part.name {
            "fullName" => about.full_name = decoder.text()?,
            "apiType" => about.api_type = decoder.text()?,
            "apiVersion" => about.api_version = decoder.text()?,
            "instanceUuid" => about.instance_uuid = Some(decoder.text()?).filter(|uuid| !uuid.is_empty()),
            _ => decoder.skip()?,
        }
    }
    Ok(about)
}
