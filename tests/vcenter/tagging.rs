//! Tags over REST.

use ccm::clients::vim::MoRef;
use support::{Object, Vcenter};

use super::{rest, scenario};

#[tokio::test]
async fn tags_are_read_from_both_ends() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = rest(&vcenter).await;
    let categories = client.list_categories().await.unwrap();
    assert_eq!(categories.len(), 1);
    let category = client.fetch_category(&categories[0]).await.unwrap().unwrap();
    assert_eq!(category.name, "k8s-zone");
    let ids = client.list_tags_of_category(&category.id).await.unwrap().unwrap();
    let mut tags = Vec::new();
    for id in &ids {
        tags.push(client.fetch_tag(id).await.unwrap().unwrap());
    }
    tags.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<_> = tags.iter().map(|tag| (tag.name.as_str(), &tag.category_id)).collect();
    assert_eq!(names, [("zone-a", &category.id), ("zone-b", &category.id)]);

    let cluster = MoRef::new("ClusterComputeResource", vcenter.object_id(&Object::cluster("cluster-1")).await);
    let by_tag = client.list_attached_objects_on_tags(&ids).await.unwrap();
    let of = |id: &str| by_tag.iter().find(|row| row.tag_id == id).map_or(Vec::new(), |row| row.objects.clone());
    assert_eq!((of(&tags[0].id), of(&tags[1].id)), (vec![cluster.clone()], Vec::new()));
    let by_object = client.list_attached_tags_on_objects(std::slice::from_ref(&cluster)).await.unwrap();
    assert_eq!(by_object.len(), 1);
    assert_eq!((&by_object[0].object, by_object[0].tag_ids.as_slice()), (&cluster, [tags[0].id.clone()].as_slice()));

    vcenter.delete_tag("k8s-zone", "zone-b").await;
    assert_eq!(client.fetch_tag(&tags[1].id).await.unwrap(), None);
    client.logout().await.unwrap();
    assert_eq!(vcenter.counts().await.rest_sessions, 0);
}
