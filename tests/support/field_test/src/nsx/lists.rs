//! Checks of lists: pages, cursors, counts, and objects that are marked for deletion.

use std::collections::BTreeSet;

use super::beliefs::{EACH_ONCE, FIRST_COUNT, LAST_CURSOR, MARKED, PAGE_SIZE};
use super::{Check, Ended};
use crate::wire::Alteration;

/// A list that has several built-in objects on every manager.
const PROFILES: &str = "/infra/lb-app-profiles";

const OPERATION: &str = "field-test.list";

/// Objects per page, and pages read.
const SIZE: usize = 2;
const MOST_PAGES: usize = 12;

/// Reads a list in small pages, and in one page.
pub(super) async fn pages(check: &mut Check) -> Result<(), Ended> {
    let all = [&FIRST_COUNT, &PAGE_SIZE, &LAST_CURSOR, &EACH_ONCE];
    let client = check.client.clone();
    let mut pages = client.pages(PROFILES, OPERATION, SIZE);
    let (mut sizes, mut paths, mut is_complete) = (Vec::new(), Vec::new(), false);
    check.wire.take();
    while sizes.len() < MOST_PAGES {
        match pages.next().await {
            Ok(Some(page)) => {
                sizes.push(page.len());
                paths.extend(page.iter().map(|object| object.path().to_owned()));
            }
            Ok(None) => {
                is_complete = true;
                break;
            }
            Err(error) => {
                for belief in all {
                    check.failed(belief, &error)?;
                }
                return Ok(());
            }
        }
    }
    let answers: Vec<_> = check.wire.take().iter().map(crate::wire::Exchange::json).collect();
    let with = |member: &str| {
        let has = answers.iter().map(|answer| answer.get(member).is_some_and(|value| !value.is_null()));
        has.collect::<Vec<_>>()
    };
    let marks = |has: &[bool]| has.iter().map(|has| if *has { 'x' } else { '-' }).collect::<String>();
    let (counts, cursors) = (with("result_count"), with("cursor"));
    let is_first_only = counts.first() == Some(&true) && counts.iter().skip(1).all(|has| !has);
    check.sheet.judge(&FIRST_COUNT, is_first_only, format!("pages with it: {}", marks(&counts)));
    let largest = sizes.iter().copied().max().unwrap_or_default();
    check.sheet.judge(&PAGE_SIZE, largest <= SIZE, format!("pages of {sizes:?} objects for {SIZE}"));
    if !is_complete {
        check.sheet.skip(&LAST_CURSOR, format!("the list has more than {MOST_PAGES} pages"));
        check.sheet.skip(&EACH_ONCE, format!("the list has more than {MOST_PAGES} pages"));
        return Ok(());
    }
    let is_expected = cursors.split_last().is_some_and(|(last, others)| !last && others.iter().all(|has| *has));
    check.sheet.judge(&LAST_CURSOR, is_expected, format!("pages with it: {}", marks(&cursors)));
    match check.client.pages(PROFILES, OPERATION, 1000).all().await {
        Ok(whole) => {
            let one: BTreeSet<_> = whole.objects.iter().map(|object| object.path().to_owned()).collect();
            let many: BTreeSet<_> = paths.iter().cloned().collect();
            let seen = format!(
                "{} in small pages, {} in large ones, {} twice",
                paths.len(),
                one.len(),
                paths.len() - many.len()
            );
            check.sheet.judge(&EACH_ONCE, one == many && paths.len() == many.len(), seen);
        }
        Err(error) => check.failed(&EACH_ONCE, &error)?,
    }
    Ok(())
}

/// Reads a list with and without objects that are marked for deletion.
pub(super) async fn marked(check: &mut Check) -> Result<(), Ended> {
    let (mut shown, mut marked) = ([0; 2], [0; 2]);
    for (at, includes) in [false, true].into_iter().enumerate() {
        let _altered = includes.then(|| check.wire.alter(&[Alteration::Query("include_mark_for_delete_objects=true")]));
        let client = check.client.clone();
        // One page of each is enough.
        match client.pages("/infra/lb-virtual-servers", OPERATION, 1000).next().await {
            Ok(page) => {
                let page = page.unwrap_or_default();
                (shown[at], marked[at]) =
                    (page.len(), page.iter().filter(|object| object.is_marked_for_delete()).count());
            }
            Err(error) => return check.failed(&MARKED, &error),
        }
    }
    let seen = format!("{} of {} marked without it, {} of {} with it", marked[0], shown[0], marked[1], shown[1]);
    match marked {
        [0, 0] => check.sheet.skip(&MARKED, "no virtual server is marked for deletion"),
        _ => check.sheet.judge(&MARKED, marked[0] == 0, seen),
    }
    Ok(())
}
