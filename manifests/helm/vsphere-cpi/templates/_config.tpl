{{/* config, with global.config over it, as JSON. Every key can be missing: values of an older release can be reused. */}}
{{- define "cpi.config" -}}
{{- $config := deepCopy (.Values.config | default dict) -}}
{{- if .Values.global -}}
{{- $config = mergeOverwrite $config (deepCopy (.Values.global.config | default dict)) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* Folder of vsphere.conf in the container. */}}
{{- define "cpi.dir" -}}
{{- include "cpi.value" (dict "root" . "path" "daemonset.cmdline.cloudConfig.dir") | default "/etc/cloud" -}}
{{- end -}}

{{/* Key of vsphere.conf in the ConfigMap. */}}
{{- define "cpi.file" -}}
{{- include "cpi.value" (dict "root" . "path" "daemonset.cmdline.cloudConfig.file") | default "vsphere.conf" -}}
{{- end -}}

{{/* Name of the ConfigMap. */}}
{{- define "cpi.configMap" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- if $config.enabled -}}
{{- if $config.existingConfigMap -}}
{{- fail "config.existingConfigMap is set, and config.enabled is true: with your own ConfigMap set config.enabled=false; otherwise remove config.existingConfigMap" -}}
{{- end -}}
{{- $config.name | default "cloud-config" -}}
{{- else -}}
{{- range list "vcenters" "nsx" "caBundle" -}}
{{- if get $config . -}}
{{- fail (printf "config.%s is set, and config.enabled is false, so vsphere.conf is your own: set config.enabled=true, or remove config.%s" . .) -}}
{{- end -}}
{{- end -}}
{{- $config.existingConfigMap | default "cloud-config" -}}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the credentials of the vCenters that name no other. Empty: your own vsphere.conf, and no name. */}}
{{- define "cpi.secret" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $old := dig "name" "" ($config.secret | default dict) | default "" -}}
{{- $new := $config.existingSecret | default "" -}}
{{- if and $new $old (ne $new $old) (ne $old "vsphere-cloud-secret") -}}
{{- fail "config.existingSecret and config.secret.name are both set, and differ: remove config.secret.name" -}}
{{- end -}}
{{- $new | default $old | default ($config.enabled | default false | ternary "vsphere-cloud-secret" "") -}}
{{- end -}}

{{/* Whether the chart creates the Secret, as JSON. */}}
{{- define "cpi.createsSecret" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $create := dig "create" true ($config.secret | default dict) -}}
{{- and $create (not $config.existingSecret) ($config.enabled | default false) | toJson -}}
{{- end -}}

{{/* Whether the certificate of vCenter is not verified, as JSON: with config.insecureFlag, or with reused values that lack this key
(helm upgrade --reuse-values), as those of upstream's chart, which never verifies it. */}}
{{- define "cpi.unchecked" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $isTrusted := or $config.thumbprint $config.caFile $config.caBundle -}}
{{- $isOld := and .Release.IsUpgrade (not (hasKey $config "insecureFlag")) -}}
{{- and (not $isTrusted) (or $isOld ($config.insecureFlag | default false)) | toJson -}}
{{- end -}}

{{/* Refuses a private key, because everybody who reads the ConfigMap would have it. Argument: path, bundle. */}}
{{- define "cpi.checkBundle" -}}
{{- if contains "PRIVATE KEY" (.bundle | default "") -}}
{{- fail (printf "%s contains a private key, and a ConfigMap is not secret: remove the key, and keep the certificates only" .path) -}}
{{- end -}}
{{- end -}}

{{/* Keys of vsphere.conf that say which certificate is accepted, as JSON. Empty: nothing does. */}}
{{- define "cpi.trust" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- if and $config.caFile $config.caBundle -}}
{{- fail "config.caFile and config.caBundle are both set: remove one of them" -}}
{{- end -}}
{{- $trust := dict -}}
{{- include "cpi.checkBundle" (dict "path" "config.caBundle" "bundle" $config.caBundle) -}}
{{- if $config.caBundle -}}
{{- $_ := set $trust "caFile" (printf "%s/vcenter-ca.pem" (include "cpi.dir" .)) -}}
{{- end -}}
{{- if $config.thumbprint -}}
{{- $_ := set $trust "thumbprint" $config.thumbprint -}}
{{- else if $config.caFile -}}
{{- $_ := set $trust "caFile" $config.caFile -}}
{{- else if eq (include "cpi.unchecked" .) "true" -}}
{{- $_ := set $trust "insecureFlag" true -}}
{{- end -}}
{{- toJson $trust -}}
{{- end -}}

{{/* The vCenters, as a list in JSON: entry of vsphere.conf with its key, username and password. */}}
{{- define "cpi.vcenters" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $isOld := ne (include "cpi.origin" .) "2.0.0" -}}
{{- $isUpstream := eq (include "cpi.origin" .) "upstream" -}}
{{- $all := list -}}
{{- if $config.vcenters -}}
{{- if and $config.vcenter (not (and $isOld (eq $config.vcenter "vcenter.local"))) -}}
{{- fail "config.vcenter and config.vcenters are both set: put the vCenter of config.vcenter into config.vcenters" -}}
{{- end -}}
{{- range $name, $given := $config.vcenters -}}
{{- $given = $given | default dict -}}
{{- $entry := dict "server" ($given.server | default $name) -}}
{{- if not (regexMatch "^[A-Za-z0-9.:_-]+$" $entry.server) -}}
{{- fail (printf "config.vcenters.%s.server is not set, and the name %s is no host name or IP address: set config.vcenters.%s.server" $name $name $name) -}}
{{- end -}}
{{- range $key, $value := omit $given "server" "username" "password" -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $entry $key $value -}}
{{- end -}}
{{- end -}}
{{- if $entry.secretName -}}
{{- $_ := set $entry "secretNamespace" ($entry.secretNamespace | default $.Release.Namespace) -}}
{{- else if $entry.secretNamespace -}}
{{- fail (printf "config.vcenters.%s.secretNamespace is set without config.vcenters.%s.secretName: set both" $name $name) -}}
{{- end -}}
{{- $account := dict "username" ($given.username | default "") "password" ($given.password | default "") -}}
{{- $all = append $all (dict "path" (printf "config.vcenters.%s" $name) "key" $name "entry" $entry "account" $account) -}}
{{- end -}}
{{- else -}}
{{- $server := $config.vcenter | default ($isUpstream | ternary "vcenter.local" "") -}}
{{- if not $server -}}
{{- fail "config.enabled is true, and no vCenter is named: set config.vcenter (host name or IP address of vCenter), or config.vcenters for several" -}}
{{- end -}}
{{- $entry := dict "server" $server -}}
{{- with $config.datacenter | default (and $isUpstream (not (hasKey $config "datacenter")) | ternary "dc" "") -}}
{{- $_ := set $entry "datacenters" (list .) -}}
{{- end -}}
{{- $username := $config.username | default ($isOld | ternary "user" "") -}}
{{- $password := $config.password | default ($isOld | ternary "pass" "") -}}
{{- $account := dict "username" $username "password" $password -}}
{{- $all = append $all (dict "path" "config" "key" $server "entry" $entry "account" $account) -}}
{{- end -}}
{{- $trust := include "cpi.trust" . | fromJson -}}
{{- $creates := eq (include "cpi.createsSecret" .) "true" -}}
{{- range $all -}}
{{- if not (or $trust .entry.thumbprint .entry.caFile .entry.insecureFlag) -}}
{{- fail (printf "nothing says which certificate of vCenter %s is accepted: set config.thumbprint (govc about.cert -k -thumbprint), config.caFile (a file that daemonset.extraVolumes mounts) or config.caBundle (certificates in PEM). For tests only, config.insecureFlag=true accepts every certificate, so that any server can receive the password" .entry.server) -}}
{{- end -}}
{{- if and $creates (not .entry.secretName) (not (and .account.username .account.password)) -}}
{{- fail (printf "the chart creates the Secret with the credentials, and %s.username or %s.password is not set: set both. For a Secret of your own set config.existingSecret" .path .path) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* Sections of vsphere.conf for NSX, as JSON. */}}
{{- define "cpi.nsx" -}}
{{- $nsx := dig "nsx" dict (include "cpi.config" . | fromJson) | default dict -}}
{{- $sections := omit $nsx "caBundle" -}}
{{- if $nsx -}}
{{- if not $nsx.nsxt -}}
{{- fail "config.nsx is set without config.nsx.nsxt: set at least config.nsx.nsxt.host" -}}
{{- end -}}
{{- $nsxt := deepCopy $nsx.nsxt -}}
{{- if and $nsx.caBundle $nsxt.caFile -}}
{{- fail "config.nsx.caBundle and config.nsx.nsxt.caFile are both set: remove one of them" -}}
{{- end -}}
{{- include "cpi.checkBundle" (dict "path" "config.nsx.caBundle" "bundle" $nsx.caBundle) -}}
{{- if $nsx.caBundle -}}
{{- $_ := set $nsxt "caFile" (printf "%s/nsx-ca.pem" (include "cpi.dir" .)) -}}
{{- end -}}
{{- if $nsxt.secretName -}}
{{- $_ := set $nsxt "secretNamespace" ($nsxt.secretNamespace | default .Release.Namespace) -}}
{{- end -}}
{{- $_ := set $sections "nsxt" $nsxt -}}
{{- $params := include "cpi.params" . | fromJson -}}
{{- if and $nsx.route (not (get $params "cluster-cidr")) -}}
{{- fail "config.nsx.route is set, and routes need the networks of the Pods: set cluster-cidr in daemonset.cmdline.additionalParams" -}}
{{- end -}}
{{- if and $nsxt.secretNamespace (not $nsxt.secretName) -}}
{{- fail "config.nsx.nsxt.secretNamespace is set without config.nsx.nsxt.secretName: set both" -}}
{{- end -}}
{{- /* Variables of the environment, such as NSXT_USERNAME, can have the credentials, too. */ -}}
{{- $isInEnvironment := not (empty .Values.extraEnvFrom) -}}
{{- range dig "env" list (.Values.daemonset | default dict) | default list -}}
{{- $isInEnvironment = or $isInEnvironment (hasPrefix "NSXT_" .name) -}}
{{- end -}}
{{- if not (or $nsxt.secretName $nsxt.clientAuthCertFile $isInEnvironment) -}}
{{- fail "config.nsx is set without credentials for NSX: set config.nsx.nsxt.secretName (a Secret with the keys username and password), or config.nsx.nsxt.clientAuthCertFile and clientAuthKeyFile" -}}
{{- end -}}
{{- end -}}
{{- toJson $sections -}}
{{- end -}}

{{/* Categories of the tags for zones, as JSON. */}}
{{- define "cpi.zones" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $isUpstream := eq (include "cpi.origin" .) "upstream" -}}
{{- $region := dig "region" ($isUpstream | ternary "k8s-region" "") $config | default "" -}}
{{- $zone := dig "zone" ($isUpstream | ternary "k8s-zone" "") $config | default "" -}}
{{- if and $region (not $zone) -}}
{{- fail "config.region is set, and config.zone is not: zones need both categories. Set config.zone, or set config.region to an empty text" -}}
{{- end -}}
{{- if and $zone (not $region) -}}
{{- fail "config.zone is set, and config.region is not: zones need both categories. Set config.region, or set config.zone to an empty text" -}}
{{- end -}}
{{- /* Empty texts turn zones off. */ -}}
{{- dict "region" $region "zone" $zone | toJson -}}
{{- end -}}

{{/* vsphere.conf, as JSON. */}}
{{- define "cpi.vsphereConf" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $global := mergeOverwrite (dict "port" 443) (include "cpi.trust" . | fromJson) -}}
{{- $entries := dict -}}
{{- /* In global, insecureFlag would take precedence over the thumbprint or caFile of an entry. */ -}}
{{- $isUnchecked := and $config.vcenters (get $global "insecureFlag") -}}
{{- if $isUnchecked -}}
{{- $_ := unset $global "insecureFlag" -}}
{{- end -}}
{{- range include "cpi.vcenters" . | fromJsonArray -}}
{{- if and $isUnchecked (not (or .entry.thumbprint .entry.caFile (hasKey .entry "insecureFlag"))) -}}
{{- $_ := set .entry "insecureFlag" true -}}
{{- end -}}
{{- $_ := set $entries .key .entry -}}
{{- if not .entry.secretName -}}
{{- $_ := set $global "secretName" (include "cpi.secret" $) -}}
{{- $_ := set $global "secretNamespace" $.Release.Namespace -}}
{{- end -}}
{{- end -}}
{{- if and $config.vcenters $config.datacenter -}}
{{- $_ := set $global "datacenters" (list $config.datacenter) -}}
{{- end -}}
{{- $written := dict "global" $global "vcenter" $entries "labels" (include "cpi.zones" . | fromJson) -}}
{{- $nodes := dict -}}
{{- range $key, $value := $config.nodes | default dict -}}
{{- if $value -}}
{{- $_ := set $nodes $key $value -}}
{{- end -}}
{{- end -}}
{{- if $nodes -}}
{{- $_ := set $written "nodes" $nodes -}}
{{- end -}}
{{- range $section, $keys := include "cpi.nsx" . | fromJson -}}
{{- $_ := set $written $section $keys -}}
{{- end -}}
{{- toJson $written -}}
{{- end -}}

{{/* Keys of the Secret with the credentials, as JSON. Empty: every vCenter names its own Secret. */}}
{{- define "cpi.credentials" -}}
{{- $keys := dict -}}
{{- $seen := dict -}}
{{- range $number, $vcenter := include "cpi.vcenters" . | fromJsonArray -}}
{{- $server := $vcenter.entry.server -}}
{{- if not $vcenter.entry.secretName -}}
{{- $before := get $seen $server -}}
{{- if and $before (ne (toJson $before.account) (toJson $vcenter.account)) (eq (include "cpi.createsSecret" $) "true") -}}
{{- fail (printf "%s and %s have the same server %s and different credentials, and a Secret has one user name and password for each server: set secretName in one of them" $before.path $vcenter.path $server) -}}
{{- end -}}
{{- $_ := set $seen $server $vcenter -}}
{{- end -}}
{{- if $vcenter.entry.secretName -}}
{{- else if contains ":" $server -}}
{{- /* A key of a Secret cannot hold an IPv6 address. */ -}}
{{- $_ := set $keys (printf "server_%d" $number) $server -}}
{{- $_ := set $keys (printf "username_%d" $number) $vcenter.account.username -}}
{{- $_ := set $keys (printf "password_%d" $number) $vcenter.account.password -}}
{{- else -}}
{{- $_ := set $keys (printf "%s.username" $server) $vcenter.account.username -}}
{{- $_ := set $keys (printf "%s.password" $server) $vcenter.account.password -}}
{{- end -}}
{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{/* The Secrets that may be read, as JSON: {"all": bool, "named": [{name, namespace}]}. Without config.enabled vsphere.conf is the
user's own, and its Secrets have to be named. Only with reused values of upstream's chart the program may read all Secrets of the
namespace, as upstream's chart permits: otherwise a running cluster would lose its credentials. */}}
{{- define "cpi.secrets" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $rbac := .Values.rbac | default dict -}}
{{- $namespace := .Release.Namespace -}}
{{- $name := include "cpi.secret" . -}}
{{- $named := list -}}
{{- $isShared := not $config.enabled -}}
{{- if $config.enabled -}}
{{- range include "cpi.vcenters" . | fromJsonArray -}}
{{- if .entry.secretName -}}
{{- $named = append $named (dict "name" .entry.secretName "namespace" .entry.secretNamespace) -}}
{{- else -}}
{{- $isShared = true -}}
{{- end -}}
{{- end -}}
{{- with dig "nsxt" dict (include "cpi.nsx" . | fromJson) -}}
{{- if .secretName -}}
{{- $named = append $named (dict "name" .secretName "namespace" .secretNamespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $isShared $name -}}
{{- $named = prepend $named (dict "name" $name "namespace" $namespace) -}}
{{- end -}}
{{- range dig "secrets" list $rbac | default list -}}
{{- $named = append $named (dict "name" .name "namespace" (.namespace | default $namespace)) -}}
{{- end -}}
{{- $isReused := and .Release.IsUpgrade (not (or (hasKey $rbac "secrets") (hasKey $rbac "nodeDeletion"))) -}}
{{- $creates := dig "create" true $rbac -}}
{{- $isUnnamed := and (not $config.existingSecret) (has $name (list "" "vsphere-cloud-secret")) -}}
{{- $all := and $creates (not $config.enabled) $isReused $isUnnamed -}}
{{- if and (not $all) (empty $named) $creates -}}
{{- fail "config.enabled is false, so vsphere.conf is your own, and the chart needs the names of its Secrets, because the program may read no others: set config.existingSecret (a Secret in the namespace of the release) or rbac.secrets ([{name: NAME, namespace: NAMESPACE}]). If vsphere.conf names no Secret, set config.existingSecret to the name of one that does not exist" -}}
{{- end -}}
{{- toJson (dict "all" $all "named" (uniq $named)) -}}
{{- end -}}
