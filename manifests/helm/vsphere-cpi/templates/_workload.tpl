{{/* Metadata of the DaemonSet or Deployment. Argument: root, part. */}}
{{- define "cpi.workloadMetadata" -}}
name: {{ include "cpi.name" .root | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "cpi.labels" . | nindent 2 }}
  tier: control-plane
{{- with dig "annotations" dict (.root.Values.daemonset | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Selector and template of the Pods. Argument: root, part. */}}
{{- define "cpi.workloadPods" -}}
{{- $set := .root.Values.daemonset | default dict -}}
# As in upstream's chart: a selector cannot be changed.
selector:
  matchLabels:
    app: {{ include "cpi.name" .root | quote }}
template:
  metadata:
    {{- with $set.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    labels:
      {{- $fixed := include "cpi.podLabels" . | fromYaml }}
      {{- $_ := set $fixed "tier" "control-plane" }}
      {{- $_ := set $fixed "release" .root.Release.Name }}
      {{- toYaml (mergeOverwrite (deepCopy ($set.podLabels | default dict)) $fixed) | nindent 6 }}
  spec:
    {{- include "cpi.pod" .root | nindent 4 }}
{{- end -}}

{{/* Update strategy, as JSON. Argument: root, rolling. */}}
{{- define "cpi.updateStrategy" -}}
{{- $kind := include "cpi.kind" .root -}}
{{- $strategy := .root.Values.updateStrategy | default dict -}}
{{- $foreign := eq $kind "Deployment" | ternary "OnDelete" "Recreate" -}}
{{- if eq ($strategy.type | default "") $foreign -}}
{{- fail (printf "updateStrategy.type is %s, and kind is %s, which does not have it: set updateStrategy.type=RollingUpdate" $foreign $kind) -}}
{{- end -}}
{{- $strategy | default (dict "type" "RollingUpdate" "rollingUpdate" .rolling) | toJson -}}
{{- end -}}
