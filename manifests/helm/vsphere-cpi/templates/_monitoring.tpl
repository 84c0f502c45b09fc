{{/* Objects of a file, as a list in JSON, in the namespace of the release and with the labels of the chart. The others take
precedence: an operator may select objects by the label app. Argument: root, file, labels. */}}
{{- define "cpi.monitoringObjects" -}}
{{- $root := .root -}}
{{- $more := .labels | default dict -}}
{{- $objects := list -}}
{{- range $text := .root.Files.Get (printf "files/%s" .file) | splitList "\n---\n" -}}
{{- $object := fromYaml $text -}}
{{- $labels := include "cpi.labels" (dict "root" $root "part" "monitoring") | fromYaml -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite $labels $more) -}}
{{- if not (hasPrefix "ClusterRole" $object.kind) -}}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $object.subjects -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}
