//! Views: sets of objects that filters follow. They belong to the session and die with it.

use super::call::{nothing, reference, references};
use super::envelope::Body;
use super::{Client, Error, MoRef};

impl Client {
    /// A view of exactly these objects, which may be none. A server takes at most 500,000 elements in one request:
    /// fill long lists in portions with [`Client::modify_list_view`].
    pub async fn create_list_view(&self, objects: &[MoRef]) -> Result<MoRef, Error> {
        let mut body = Body::of(&self.content().view_manager);
        for object in objects {
            body.reference("obj", object);
        }
        self.write("CreateListView", body, reference).await
    }

    /// Adds and removes objects; returns those the server could not resolve. The caller keeps portions small.
    pub async fn modify_list_view(&self, view: &MoRef, add: &[MoRef], remove: &[MoRef]) -> Result<Vec<MoRef>, Error> {
        let mut body = Body::of(view);
        for object in add {
            body.reference("add", object);
        }
        for object in remove {
            body.reference("remove", object);
        }
        self.write("ModifyListView", body, references).await
    }

    /// Removes a view.
    pub async fn destroy_view(&self, view: &MoRef) -> Result<(), Error> {
        self.write("DestroyView", Body::of(view), nothing).await
    }
}
