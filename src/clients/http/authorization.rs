//! The `Authorization` header with user and password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

/// Returns the value of `Authorization` for this scheme, such as `Basic`. All buffers have their final size from the
/// start and are wiped, so no copy of the password remains.
pub fn authorization(scheme: &str, user: &str, password: &SecretString) -> SecretString {
    let password = password.expose_secret();
    let mut pair = Zeroizing::new(String::with_capacity(user.len() + 1 + password.len()));
    pair.push_str(user);
    pair.push(':');
    pair.push_str(password);
    // The capacity equals the final length, so the conversion to a secret copies nothing.
    let mut value = String::with_capacity(scheme.len() + 1 + pair.len().div_ceil(3) * 4);
    value.push_str(scheme);
    value.push(' ');
    STANDARD.encode_string(pair.as_bytes(), &mut value);
    value.into()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::authorization;

    #[test]
    fn user_and_password_are_one_base64_text() {
        for (user, password, expected) in [
            ("Aladdin", "open sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("a", "", "Basic YTo="),
            ("ccm@vsphere.local", "пароль", "Basic Y2NtQHZzcGhlcmUubG9jYWw60L/QsNGA0L7Qu9GM"),
        ] {
            assert_eq!(authorization("Basic", user, &password.into()).expose_secret(), expected, "{user}");
        }
    }
}
