//! Checks of tags over REST: the session, the visible tags, batches, and the poll.

use ccm::clients::vapi;
use ccm::clients::vim::{MoRef, ObjectContent, ServiceContent};
use ccm::providers::vsphere::login::credentials::Login;
use jiff::Timestamp;

use super::beliefs::{CATEGORIES, CATEGORY_GONE, OBJECT_BATCH, REST_SESSION, TAG_BATCH, TAG_POLL};
use super::{Check, Ended, rest_reason};

/// First API version in which a SOAP session serves REST.
const ONE_SESSION: [u32; 4] = [8, 0, 3, 0];

/// Number of categories that are read.
const MOST_CATEGORIES: usize = 5;

/// Number of tags or objects in a batch.
const MOST_IN_BATCH: usize = 100;

/// Well-formed id of a category that does not exist.
const NEVER: &str = "urn:vmomi:InventoryServiceCategory:00000000-0000-4000-8000-00000000f1e1:GLOBAL";

/// Reads tags. It logs in separately only if the server does not accept the SOAP session.
pub(super) async fn read(
    check: &mut Check,
    content: &ServiceContent,
    login: &Login,
    samples: &[ObjectContent],
) -> Result<(), Ended> {
    let Some(secret) = check.soap.session_secret() else { return Ok(()) };
    check.rest.borrow_session(secret);
    let is_expected = content.about.is_api_at_least(ONE_SESSION);
    let mut listed = check.rest.list_categories().await;
    match &listed {
        Err(error) if error.is_unauthenticated() => {
            check.sheet.judge(&REST_SESSION, !is_expected, format!("API {}: refused", content.about.api_version));
            let presented = match (login, &check.token) {
                (Login::Password { user, password }, _) => check.rest.login(user, password).await,
                (_, Some(token)) => check.rest.login_signed(token, Timestamp::now()).await,
                // As in the product, the REST session is the SOAP session.
                (_, None) => {
                    let all = [&CATEGORIES, &CATEGORY_GONE, &TAG_BATCH, &OBJECT_BATCH, &TAG_POLL];
                    for belief in all {
                        check.sheet.skip(belief, "REST does not accept a session of a session manager");
                    }
                    return Ok(());
                }
            };
            match presented {
                Ok(()) => {}
                Err(error) if error.is_invalid_login() => {
                    return Err(Ended("the login over REST was rejected; it is not tried again".to_owned()));
                }
                Err(error) => return check.failed_rest(&CATEGORIES, &error),
            }
            listed = check.rest.list_categories().await;
        }
        Err(_) => {}
        Ok(_) => check.sheet.judge(&REST_SESSION, is_expected, format!("API {}: accepted", content.about.api_version)),
    }
    let ids = match listed {
        Ok(ids) => ids,
        Err(error) => return check.failed_rest(&CATEGORIES, &error),
    };
    let tags = categories(check, &ids).await?;
    match check.rest.fetch_category(NEVER).await {
        Ok(None) => check.sheet.judge(&CATEGORY_GONE, true, "status 404"),
        Ok(Some(_)) => check.sheet.judge(&CATEGORY_GONE, false, "it was found"),
        Err(error) => check.failed_rest(&CATEGORY_GONE, &error)?,
    }
    batches(check, &tags, samples).await
}

/// Reads categories. Returns the ids of their tags.
async fn categories(check: &mut Check, ids: &[String]) -> Result<Vec<String>, Ended> {
    let (mut tags, mut read, mut gone, mut refused) = (Vec::new(), 0, 0, Vec::new());
    for id in ids.iter().take(MOST_CATEGORIES) {
        match check.rest.fetch_category(id).await {
            Ok(Some(_)) => read += 1,
            Ok(None) => gone += 1,
            Err(vapi::Error::Http(error)) => super::ended_by(&error)?,
            Err(error) => refused.push(rest_reason(&error)),
        }
        match check.rest.list_tags_of_category(id).await {
            Ok(of_category) => tags.extend(of_category.into_iter().flatten()),
            Err(vapi::Error::Http(error)) => super::ended_by(&error)?,
            Err(error) => refused.push(rest_reason(&error)),
        }
    }
    refused.dedup();
    let seen =
        format!("{} categories, {read} read, {gone} not found, {} tags, refused: {refused:?}", ids.len(), tags.len());
    match ids.is_empty() {
        true => check.sheet.skip(&CATEGORIES, "no category is visible: there is none, or the account may not read it"),
        false => check.sheet.judge(&CATEGORIES, gone == 0 && refused.is_empty(), seen),
    }
    tags.truncate(MOST_IN_BATCH);
    Ok(tags)
}

/// Makes both batch calls, and the first one twice.
async fn batches(check: &mut Check, tags: &[String], samples: &[ObjectContent]) -> Result<(), Ended> {
    if tags.is_empty() {
        check.sheet.skip(&TAG_BATCH, "no tag is visible");
        check.sheet.skip(&TAG_POLL, "no tag is visible");
    } else {
        match check.rest.list_attached_objects_on_tags(tags).await {
            Ok(first) => {
                let objects: usize = first.iter().map(|row| row.objects.len()).sum();
                let seen = format!("{} tags, {} rows, {objects} objects", tags.len(), first.len());
                check.sheet.judge(&TAG_BATCH, first.len() == tags.len(), seen);
                match check.rest.list_attached_objects_on_tags(tags).await {
                    Ok(second) => {
                        let is_same = is_same(first, second);
                        check.sheet.judge(&TAG_POLL, is_same, if is_same { "the same" } else { "another answer" });
                    }
                    Err(error) => check.failed_rest(&TAG_POLL, &error)?,
                }
            }
            Err(error) => check.failed_rest(&TAG_BATCH, &error)?,
        }
    }
    let objects: Vec<MoRef> = samples.iter().take(MOST_IN_BATCH).map(|vm| vm.object.clone()).collect();
    if objects.is_empty() {
        check.sheet.skip(&OBJECT_BATCH, "no VM is visible");
        return Ok(());
    }
    match check.rest.list_attached_tags_on_objects(&objects).await {
        Ok(rows) => {
            let of_others = rows.iter().filter(|row| !objects.contains(&row.object)).count();
            let seen = format!("{} objects, {} rows, {of_others} of other objects", objects.len(), rows.len());
            check.sheet.judge(&OBJECT_BATCH, of_others == 0, seen);
        }
        Err(error) => check.failed_rest(&OBJECT_BATCH, &error)?,
    }
    Ok(())
}

/// Returns true if both are equal in any order.
fn is_same(one: Vec<vapi::TagObjects>, other: Vec<vapi::TagObjects>) -> bool {
    let sorted = |mut rows: Vec<vapi::TagObjects>| {
        rows.sort_by(|a, b| a.tag_id.cmp(&b.tag_id));
        rows.iter_mut()
            .for_each(|row| row.objects.sort_by_key(|object| (object.kind().to_owned(), object.id().to_owned())));
        rows
    };
    sorted(one) == sorted(other)
}
