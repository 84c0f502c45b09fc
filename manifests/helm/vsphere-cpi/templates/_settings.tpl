{{/* Flags in daemonset.cmdline.additionalParams, as JSON: name with dashes, and text. */}}
{{- define "cpi.params" -}}
{{- $params := dict -}}
{{- range $flag, $value := dig "cmdline" "additionalParams" dict (.Values.daemonset | default dict) | default dict -}}
{{- $_ := set $params ($flag | replace "_" "-") (kindIs "invalid" $value | ternary "" (include "cpi.text" $value)) -}}
{{- end -}}
{{- toJson $params -}}
{{- end -}}

{{/* Text of a value that is also a flag of upstream's program. Empty if the value is its default. A different flag in
additionalParams is refused. Argument: root, value, flag, default. */}}
{{- define "cpi.flag" -}}
{{- $text := include "cpi.value" (dict "root" .root "path" .value) -}}
{{- if eq $text .default -}}
{{- $text = "" -}}
{{- end -}}
{{- $params := include "cpi.params" .root | fromJson -}}
{{- if and $text (hasKey $params .flag) (ne $text (get $params .flag)) -}}
{{- fail (printf "%s and %s in daemonset.cmdline.additionalParams are both set, and differ: remove %s there" .value .flag .flag) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* Port of probes and metrics. */}}
{{- define "cpi.port" -}}
{{- $params := include "cpi.params" . | fromJson -}}
{{- $text := include "cpi.flag" (dict "root" . "value" "port" "flag" "secure-port" "default" "10258") -}}
{{- $text | default (get $params "secure-port") | default "10258" -}}
{{- end -}}

{{/* Address of the port. */}}
{{- define "cpi.bindAddress" -}}
{{- $params := include "cpi.params" . | fromJson -}}
{{- $text := include "cpi.flag" (dict "root" . "value" "bindAddress" "flag" "bind-address" "default" "") -}}
{{- $text | default (get $params "bind-address") -}}
{{- end -}}

{{/* Arguments of the container, as a list in JSON. */}}
{{- define "cpi.args" -}}
{{- $cmdline := dig "cmdline" dict (.Values.daemonset | default dict) | default dict -}}
{{- $dir := dig "cloudConfig" "dir" "" $cmdline | default "/etc/cloud" -}}
{{- $file := dig "cloudConfig" "file" "" $cmdline | default "vsphere.conf" -}}
{{- $args := list "--cloud-provider=vsphere" (printf "--v=%s" (include "cpi.text" (dig "logging" 2 $cmdline))) -}}
{{- $args = append $args (printf "--cloud-config=%s/%s" $dir $file) -}}
{{- $params := include "cpi.params" . | fromJson -}}
{{- range list (list "port" "secure-port" "10258") (list "bindAddress" "bind-address" "") -}}
{{- $text := include "cpi.flag" (dict "root" $ "value" (index . 0) "flag" (index . 1) "default" (index . 2)) -}}
{{- if and $text (not (hasKey $params (index . 1))) -}}
{{- $args = append $args (printf "--%s=%s" (index . 1) $text) -}}
{{- end -}}
{{- end -}}
{{- range $flag, $value := $cmdline.additionalParams | default dict -}}
{{- if or (kindIs "invalid" $value) (and (kindIs "string" $value) (eq $value "")) -}}
{{- $args = append $args (printf "--%s" $flag) -}}
{{- else -}}
{{- $args = append $args (printf "--%s=%s" $flag (include "cpi.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}

{{/* Values that set an environment variable, as JSON: the variable and the text. */}}
{{- define "cpi.variables" -}}
{{- $all := list -}}
{{- range $value, $variable := dict
  "nodeDeletion.mode" "CCM_NODE_DELETION"
  "nodeDeletion.grace" "CCM_NODE_DELETION_GRACE"
  "nodeDeletion.limit" "CCM_NODE_DELETION_LIMIT"
  "nodeDeletion.massHold" "CCM_NODE_DELETION_MASS_HOLD"
  "zoneLabels" "CCM_ZONE_LABELS"
  "adoptUntaintedNodes" "CCM_ADOPT_UNTAINTED_NODES"
  "nodeSelectorLabel" "CCM_NODE_SELECTOR"
  "outOfServiceAfter" "CCM_OUT_OF_SERVICE_AFTER"
  "topologyLabels" "CCM_TOPOLOGY_LABELS" -}}
{{- $text := include "cpi.value" (dict "root" $ "path" $value) -}}
{{- if not (has $text (list "" "false")) -}}
{{- $all = append $all (dict "value" $value "variable" $variable "text" $text) -}}
{{- end -}}
{{- end -}}
{{- /* Without the permission, each deletion would fail. */ -}}
{{- $mode := include "cpi.value" (dict "root" . "path" "nodeDeletion.mode") -}}
{{- if not (or $mode (dig "nodeDeletion" true (.Values.rbac | default dict))) -}}
{{- $isNamed := hasKey (include "cpi.params" . | fromJson) "node-deletion" -}}
{{- range dig "env" list (.Values.daemonset | default dict) | default list -}}
{{- $isNamed = or $isNamed (has .name (list "CCM_NODE_DELETION" "SKIP_NODE_DELETION")) -}}
{{- end -}}
{{- if not $isNamed -}}
{{- $all = append $all (dict "value" "rbac.nodeDeletion" "variable" "CCM_NODE_DELETION" "text" "dry-run") -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* Environment variables of the container, as a list in JSON. */}}
{{- define "cpi.env" -}}
{{- $own := dig "env" list (.Values.daemonset | default dict) | default list -}}
{{- $port := .Values.k8sServicePort | default 6443 | toString -}}
{{- $env := list -}}
{{- if .Values.k8sServiceHost -}}
{{- range $own -}}
{{- if has .name (list "KUBERNETES_SERVICE_HOST" "KUBERNETES_SERVICE_PORT") -}}
{{- fail (printf "%s is in daemonset.env, and k8sServiceHost is set: remove one of them" .name) -}}
{{- end -}}
{{- end -}}
{{- $env = list (dict "name" "KUBERNETES_SERVICE_HOST" "value" .Values.k8sServiceHost) -}}
{{- $env = append $env (dict "name" "KUBERNETES_SERVICE_PORT" "value" $port) -}}
{{- else if ne $port "6443" -}}
{{- fail "k8sServicePort is set without k8sServiceHost: set both" -}}
{{- end -}}
{{- $params := include "cpi.params" . | fromJson -}}
{{- range $setting := include "cpi.variables" . | fromJsonArray -}}
{{- $flag := $setting.variable | trimPrefix "CCM_" | lower | replace "_" "-" -}}
{{- if and (hasKey $params $flag) (ne (get $params $flag) $setting.text) -}}
{{- fail (printf "%s and %s in daemonset.cmdline.additionalParams are both set, and differ: remove %s there" $setting.value $flag $flag) -}}
{{- end -}}
{{- $isThere := false -}}
{{- range $own -}}
{{- if and (eq .name "SKIP_NODE_DELETION") (eq $setting.variable "CCM_NODE_DELETION") (ne $setting.text "off") -}}
{{- fail "nodeDeletion.mode is not off, and SKIP_NODE_DELETION in daemonset.env turns deletion off: remove one of them" -}}
{{- end -}}
{{- if eq .name $setting.variable -}}
{{- $isThere = true -}}
{{- if ne (.value | default "" | toString) $setting.text -}}
{{- fail (printf "%s and %s in daemonset.env are both set, and differ: remove %s there" $setting.value .name .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $isThere -}}
{{- $env = append $env (dict "name" $setting.variable "value" $setting.text) -}}
{{- end -}}
{{- end -}}
{{- concat $env $own | toJson -}}
{{- end -}}

{{/* Whether the program may delete Nodes, as JSON. */}}
{{- define "cpi.mayDeleteNodes" -}}
{{- $mode := include "cpi.value" (dict "root" . "path" "nodeDeletion.mode") -}}
{{- $may := dig "nodeDeletion" true (.Values.rbac | default dict) -}}
{{- if and (eq $mode "enforce") (not $may) -}}
{{- fail "nodeDeletion.mode is enforce, and rbac.nodeDeletion is false: they differ. Remove rbac.nodeDeletion, or set nodeDeletion.mode to dry-run or off" -}}
{{- end -}}
{{- and $may (has $mode (list "" "enforce")) | toJson -}}
{{- end -}}
