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
    /// The default property collector, shared by everything in the session.
    pub property_collector: MoRef,
    /// Creates views.
    pub view_manager: MoRef,
    /// Finds VMs.
    pub search_index: MoRef,
    /// Logs in and out.
    pub session_manager: MoRef,
    /// Manages permissions; every vCenter names it.
    pub authorization_manager: Option<MoRef>,
    /// The root of the inventory; every vCenter names it.
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
    /// The identity of this vCenter, which survives restarts and renaming.
    pub instance_uuid: Option<String>,
}

impl AboutInfo {
    /// Whether the API is at least this version; missing parts count as 0.
    pub fn is_api_at_least(&self, wanted: [u32; 4]) -> bool {
        let mut have = [0; 4];
        for (slot, part) in have.iter_mut().zip(self.api_version.split('.')) {
            *slot = part.parse().unwrap_or(0);
        }
        have >= wanted
    }
}

impl ServiceContent {
    /// The content with the ids that all vCenters use, until the server has reported its own.
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
    /// Negotiates a version and reads the server's description. Needs no session; keeps an existing one.
    ///
    /// # Errors
    /// [`Error::NotVcenter`] when the peer is an ESXi host or something else.
    pub async fn connect(&self) -> Result<ServiceContent, Error> {
        let version = self.fetch_version().await?;
        self.state().version = version;
        let content = self.fetch_content().await?;
        self.state().content = content.clone();
        Ok(content)
    }

    /// Checks whether the server answers, with one call that needs no session and leaves this client's state unchanged.
    ///
    /// # Errors
    /// As [`Client::connect`].
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

    /// Logs in; a cookie of an earlier session is dropped first.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for rejected credentials: repeating them locks the account.
    pub async fn login(&self, user: &str, password: &SecretString) -> Result<(), Error> {
        let mut body = RequestBody::of(&self.content().session_manager);
        body.text("userName", user);
        body.text("password", password.expose_secret());
        self.open_session("Login", body).await
    }

    /// Logs in with a token, signed with the key it was issued for; a cookie of an earlier session is dropped first.
    ///
    /// # Errors
    /// As [`Client::login`]: an expired or refused token is [`Error::is_invalid_login`].
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

    /// Opens a session as a user who is already logged in, with a ticket of that user's session (`AcquireCloneTicket`),
    /// which is valid for one use; a cookie of an earlier session is dropped first.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for a ticket that is unknown, used or expired.
    pub async fn clone_session(&self, ticket: &SecretString) -> Result<(), Error> {
        let mut body = RequestBody::of(&self.content().session_manager);
        body.text("cloneTicket", ticket.expose_secret());
        self.open_session("CloneSession", body).await
    }

    async fn open_session(&self, method: &'static str, body: RequestBody) -> Result<(), Error> {
        // Logs in without a cookie: the simulator answers InvalidLogin to a login with the cookie of a live session,
        // and an earlier session is not needed.
        self.forget_session();
        let call = VimCall { method, timeout: self.inner.timeouts.login, repeatable: false };
        match self.call(call, body, read_session_key).await {
            Ok(key) => {
                self.state().session_key = key.map(SecretString::from);
                Ok(())
            }
            Err(error) => {
                if !matches!(error, Error::Fault { .. }) {
                    // The server may have opened a session even if its answer is malformed. Best effort.
                    let _ = self.logout().await;
                }
                // Older servers set a cookie even when they refuse the login; it is useless.
                self.forget_session();
                Err(error)
            }
        }
    }

    /// Whether the session holds this privilege on the root folder; `None` if the server does not name the session or
    /// the folder. Servers do not report whether the privilege propagates to child objects.
    ///
    /// # Errors
    /// When the server does not answer, or rejects the session.
    pub async fn has_privilege_on_root(&self, privilege: &str) -> Result<Option<bool>, Error> {
        let ServiceContent { authorization_manager, root_folder, .. } = self.content();
        let key = self.state().session_key.clone();
        let (Some(manager), Some(root), Some(key)) = (authorization_manager, root_folder, key) else { return Ok(None) };
        let mut body = RequestBody::of(&manager);
        body.reference("entity", &root);
        body.text("sessionId", key.expose_secret());
        body.text("privId", privilege);
        let answer = |decoder: &mut Decoder<'_>| return_value(decoder, |decoder, _| decoder.text());
        match self.read("HasPrivilegeOnEntity", body, answer).await {
            Ok(answer) => Ok(answer.map(|text| matches!(text.trim(), "true" | "1"))),
            // An account that may not see the folder has no privilege on it.
            Err(error) if error.is_no_permission() => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }

    /// Ends the session with its collectors, filters, views and waits, within 3 s. The cookie is dropped whatever the
    /// answer.
    ///
    /// # Errors
    /// When the server could not be reached; it drops the session after its idle time.
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

    /// Drops the cookie without telling the server.
    pub fn forget_session(&self) {
        let mut state = self.state();
        (state.cookie, state.session_key) = (None, None);
    }

    /// Whether the server still knows the session. Reads `currentSession`, which unlike
    /// `SessionIsActive` needs no privilege.
    pub async fn is_logged_in(&self) -> Result<bool, Error> {
        if self.state().cookie.is_none() {
            return Ok(false);
        }
        let spec = FilterSpec::of_object(&self.content().session_manager, &["currentSession"]);
        let objects = match self.retrieve_properties(&spec).await {
            // Without a session, vCenter omits the property; the fault means the same.
            Err(error) if error.is_not_authenticated() => return Ok(false),
            answer => answer?,
        };
        Ok(objects.iter().any(|object| object.property("currentSession").is_some()))
    }

    /// The session's secret without its quotes, which vCenter 8.0U3 and later accepts as a REST session id.
    pub fn session_secret(&self) -> Option<SecretString> {
        let cookie = self.state().cookie.clone()?;
        Some(SecretString::from(cookie.expose_secret().trim_matches('"').to_owned()))
    }

    async fn fetch_version(&self) -> Result<String, Error> {
        let timeout = self.inner.timeouts.call;
        let request = Request::new(Method::GET, "/sdk/vimServiceVersions.xml", "vimServiceVersions", timeout);
        let response = self.inner.http.send(request).await?;
        // Without a usable list, use the version that every supported server knows.
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

/// `UserSession.key` of a login.
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
