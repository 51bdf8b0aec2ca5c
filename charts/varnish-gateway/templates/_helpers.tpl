{{- /* Release names may hold dots and begin with a digit; names of Services may not. */ -}}
{{- define "vg.fullname" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := printf "%s-varnish-gateway" ($release | trunc 30 | trimSuffix "-") -}}
{{- if .Values.fullnameOverride }}{{ $name = .Values.fullnameOverride -}}
{{- else if contains "varnish-gateway" $release }}{{ $name = $release -}}
{{- end -}}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "vg-%s" $name }}{{ end -}}
{{- $name | trunc 46 | trimSuffix "-" -}}
{{- end }}

{{- define "vg.operator" -}}{{ include "vg.fullname" . }}-operator{{- end }}

{{- /* What belongs to no namespace carries it in its name, so that two namespaces can have a release of the same name. */ -}}
{{- define "vg.clusterwide" -}}
{{ include "vg.fullname" . }}{{ if ne .Release.Namespace "varnish-gateway-system" }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- define "vg.operatorRole" -}}{{ include "vg.clusterwide" . }}-operator{{- end }}

{{- define "vg.chaperone" -}}{{ include "vg.clusterwide" . }}-chaperone{{- end }}

{{- define "vg.serviceAccount" -}}{{ .Values.serviceAccount.name | default (include "vg.operator" .) }}{{- end }}

{{- define "vg.selector" -}}
app.kubernetes.io/name: varnish-gateway-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* Labels of everything but the operator and what selects it. */ -}}
{{- define "vg.labelsOf" -}}
{{- $name := index . 0 }}{{ $root := index . 1 -}}
app.kubernetes.io/name: {{ $name }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/part-of: varnish-gateway
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "vg.labels" -}}{{ include "vg.labelsOf" (list "varnish-gateway-operator" .) }}{{- end }}

{{- define "vg.controllerName" -}}
{{- if .Values.gatewayClass.controllerName }}{{ .Values.gatewayClass.controllerName }}
{{- else if eq .Values.gatewayClass.name "varnish" }}varnish-software.com/gateway
{{- else }}varnish-software.com/{{ .Values.gatewayClass.name }}
{{- end }}
{{- end }}

{{- define "vg.ingressClass" -}}{{ .Values.ingressClass.name | default .Values.gatewayClass.name }}{{- end }}

{{- define "vg.ingressControllerName" -}}
{{- $controller := include "vg.controllerName" . -}}
{{- if .Values.ingressClass.controllerName }}{{ .Values.ingressClass.controllerName }}
{{- else if eq $controller "varnish-software.com/gateway" }}varnish-software.com/ingress
{{- else }}{{ $controller }}-ingress
{{- end }}
{{- end }}

{{- /* One image out of {repository, tag, digest}. */ -}}
{{- define "vg.image" -}}
{{- $image := index . 0 }}{{ $root := index . 1 -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* Whose classes are ours, and under which names we work. */ -}}
{{- define "vg.identity" -}}
- name: CONTROLLER_NAME
  value: {{ include "vg.controllerName" . | quote }}
- name: INGRESS_CONTROLLER_NAME
  value: {{ include "vg.ingressControllerName" . | quote }}
- name: INGRESS_CLASS
  value: {{ include "vg.ingressClass" . | quote }}
- name: CHAPERONE_CLUSTER_ROLE
  value: {{ include "vg.chaperone" . | quote }}
{{- with .Values.watchNamespaces }}
- name: WATCH_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
- name: LEASE_NAME
  value: {{ include "vg.operator" . | quote }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{- /* The pod of a Job that runs once around an upgrade or an uninstall. */ -}}
{{- define "vg.jobPod" -}}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      restartPolicy: Never
      securityContext: {{- toYaml .Values.operator.podSecurityContext | nindent 8 }}
      {{- with .Values.operator.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.operator.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.operator.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{- /* Fails where parameters have a field that their CRD does not know: the API server would drop it without a word. */ -}}
{{- define "vg.checked" -}}
{{- $path := index . 0 }}{{ $value := index . 1 }}{{ $schema := index . 2 -}}
{{- if and (kindIs "map" $value) $schema.properties -}}
  {{- range $name, $inner := $value -}}
    {{- if not (hasKey $schema.properties $name) -}}
      {{- if not (index $schema "x-kubernetes-preserve-unknown-fields") -}}
        {{- fail (printf "%s.%s: GatewayClassParameters have no such field; there are: %s" $path $name (keys $schema.properties | sortAlpha | join ", ")) -}}
      {{- end -}}
    {{- else -}}
      {{- include "vg.checked" (list (printf "%s.%s" $path $name) $inner (index $schema.properties $name)) -}}
    {{- end -}}
  {{- end -}}
{{- else if and (kindIs "slice" $value) $schema.items -}}
  {{- range $place, $inner := $value -}}
    {{- include "vg.checked" (list (printf "%s[%d]" $path $place) $inner $schema.items) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "vg.parameters" -}}
{{- $path := index . 0 }}{{ $value := index . 1 }}{{ $root := index . 2 -}}
{{- $crd := $root.Files.Get "crds/gatewayclassparameters.yaml" | fromYaml -}}
{{- $version := index $crd.spec.versions 0 -}}
{{- include "vg.checked" (list $path $value $version.schema.openAPIV3Schema.properties.spec) -}}
{{- toYaml $value -}}
{{- end }}
