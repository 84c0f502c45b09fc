{{/* Whether this repository is upstream's, as JSON. */}}
{{- define "cpi.isUpstreamImage" -}}
{{- or (hasSuffix "cloud-pv-vsphere/cloud-provider-vsphere" .) (hasSuffix "cloud-provider-vsphere/cpi/release/manager" .) | toJson -}}
{{- end -}}

{{/* Whether the values name both this program's image (image.repository) and, reused from upstream's chart, upstream's
(daemonset.image), as JSON. Then the old values have no effect. */}}
{{- define "cpi.isImageReplaced" -}}
{{- $old := include "cpi.value" (dict "root" . "path" "daemonset.image") -}}
{{- $new := include "cpi.value" (dict "root" . "path" "image.repository") -}}
{{- and (ne $new "") (eq (include "cpi.isUpstreamImage" $old) "true") | toJson -}}
{{- end -}}

{{/* The image reference. With a digest the tag is information only. */}}
{{- define "cpi.image" -}}
{{- $registry := include "cpi.value" (dict "root" . "path" "image.registry") -}}
{{- $new := include "cpi.value" (dict "root" . "path" "image.repository") -}}
{{- $old := include "cpi.value" (dict "root" . "path" "daemonset.image") -}}
{{- if and $registry (not $new) -}}
{{- fail "image.registry is set without image.repository: set both" -}}
{{- end -}}
{{- if $registry -}}
{{- $new = printf "%s/%s" $registry $new -}}
{{- end -}}
{{- $isReplaced := eq (include "cpi.isImageReplaced" .) "true" -}}
{{- if and $new $old (ne $new $old) (not $isReplaced) -}}
{{- fail (printf "image.repository (%s) and daemonset.image (%s) are both set, and differ: remove daemonset.image" $new $old) -}}
{{- end -}}
{{- $image := $new | default $old -}}
{{- $name := $new | empty | ternary "daemonset.image" "image.repository" -}}
{{- if not $image -}}
{{- fail "image.repository is not set: set it to the repository of the image, such as registry.example.com/vsphere-cloud-controller-manager; with image.tag or image.digest, and image.pullSecrets for a private registry. How to get an image: docs/install/image.md" -}}
{{- end -}}
{{- /* Its image does not answer /livez. */ -}}
{{- if eq (include "cpi.isUpstreamImage" $image) "true" -}}
{{- fail (printf "%s is %s, the image of upstream's program (cloud-provider-vsphere): set image.repository to the repository of vsphere-cloud-controller-manager, and image.tag to its version. How to get an image: docs/install/image.md" $name $image) -}}
{{- end -}}
{{- $tag := include "cpi.value" (dict "root" . "path" "image.tag") -}}
{{- $digest := include "cpi.value" (dict "root" . "path" "image.digest") -}}
{{- if not $isReplaced -}}
{{- $tag = include "cpi.either" (dict "root" . "new" "image.tag" "old" "daemonset.tag") -}}
{{- $digest = include "cpi.either" (dict "root" . "new" "image.digest" "old" "daemonset.digest") -}}
{{- end -}}
{{- if and $digest (contains "@" $tag) -}}
{{- fail "image.tag (or daemonset.tag) and image.digest (or daemonset.digest) both name a digest: remove it from the tag" -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s%s@%s" $image (empty $tag | ternary "" (printf ":%s" $tag)) $digest -}}
{{- else -}}
{{- printf "%s:%s" $image ($tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Secrets for a private registry, as a list in JSON. */}}
{{- define "cpi.pullSecrets" -}}
{{- $new := dig "pullSecrets" list (.Values.image | default dict) | default list -}}
{{- $old := .Values.imagePullSecrets | default list -}}
{{- if and $new $old (ne (toJson $new) (toJson $old)) -}}
{{- fail "image.pullSecrets and imagePullSecrets are both set, and differ: remove imagePullSecrets" -}}
{{- end -}}
{{- $new | default $old | toJson -}}
{{- end -}}
