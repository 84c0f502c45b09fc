{{/* Objects of a file, as a list in JSON, in the namespace of the release and with the labels of the chart, which take precedence
over the others. Argument: root, file, labels. */}}
{{- define "cpi.monitoringObjects" -}}
{{- $root := .root -}}
{{- $more := .labels | default dict -}}
{{- $objects := list -}}
{{- range $text := .root.Files.Get (printf "files/%s" .file) | splitList "\n---\n" -}}
{{- $object := fromYaml $text -}}
{{- $labels := include "cpi.labels" (dict "root" $root "part" "monitoring") | fromYaml -}}
{{- range $key, $value := $more -}}
{{- if not (hasKey $labels $key) -}}
{{- $_ := set $labels $key $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $object.metadata "labels" $labels -}}
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
