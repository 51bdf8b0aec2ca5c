{{- define "vg.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains "varnish-gateway" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-varnish-gateway" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "vg.operator" -}}{{ include "vg.fullname" . }}-operator{{- end }}

{{- define "vg.chaperone" -}}{{ include "vg.fullname" . }}-chaperone{{- end }}

{{- define "vg.serviceAccount" -}}{{ .Values.serviceAccount.name | default (include "vg.operator" .) }}{{- end }}

{{- define "vg.selector" -}}
app.kubernetes.io/name: varnish-gateway-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vg.labels" -}}
{{ include "vg.selector" . }}
app.kubernetes.io/part-of: varnish-gateway
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "vg.controllerName" -}}
{{- if .Values.gatewayClass.controllerName }}{{ .Values.gatewayClass.controllerName }}
{{- else if eq .Values.gatewayClass.name "varnish" }}varnish-software.com/gateway
{{- else }}varnish-software.com/{{ .Values.gatewayClass.name }}
{{- end }}
{{- end }}

{{- /* One image out of {repository, tag, digest}. */ -}}
{{- define "vg.image" -}}
{{- $image := index . 0 }}{{ $root := index . 1 -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}
{{- end }}
