{{/*
The settings that let people of one namespace do what others notice: a list of sentences, as JSON. Each begins with the name of its value.
*/}}
{{- define "fluxqueue.openSettings" -}}
{{- $open := list -}}
{{- $network := .Values.networkPolicy -}}
{{- if ne .Values.enforcement.mode "deny" -}}
{{- $open = append $open (printf "enforcement.mode is %s: everybody may take work out of the queue; deny closes it" .Values.enforcement.mode) -}}
{{- end -}}
{{- if not $network.enabled -}}
{{- $open = append $open "networkPolicy.enabled is false: every pod reaches every port" -}}
{{- else -}}
{{- if not $network.apiServerCIDRs -}}
{{- $called := ternary "the webhook and the extender" "the webhook" (and .Values.scheduler.enabled .Values.scheduler.extender.enabled) -}}
{{- $open = append $open (printf "networkPolicy.apiServerCIDRs is empty: every pod reaches %s, and the API server's proxy may not reach the queue; name the addresses of the API server" $called) -}}
{{- end -}}
{{- if and .Values.dashboard.enabled (not $network.dashboardFrom) -}}
{{- $open = append $open "networkPolicy.dashboardFrom is empty: every pod reaches the sign-in page of the dashboard; name the ingress controller" -}}
{{- end -}}
{{- end -}}
{{- with .Values.rbac.queuesReadableBy -}}
{{- $open = append $open (printf "rbac.queuesReadableBy is %s: they read all FluxQueues, FluxAccounts and FluxReservations, which name namespaces" (join ", " .)) -}}
{{- end -}}
{{- with .Values.rbac.historyReachableBy -}}
{{- $open = append $open (printf "rbac.historyReachableBy is %s: they reach the queue's metrics port, which asks for a token" (join ", " .)) -}}
{{- end -}}
{{- if eq .Values.webhook.failurePolicy "Ignore" -}}
{{- $open = append $open "webhook.failurePolicy is Ignore: a bare Pod created while the webhook is away is not queued, it runs where the scheduler puts it" -}}
{{- end -}}
{{- if .Values.defaultQueue.create -}}
{{- $spec := .Values.defaultQueue.spec -}}
{{- $highest := dig "maxPriority" nil $spec -}}
{{- if kindIs "invalid" $highest -}}
{{- $open = append $open "defaultQueue.spec.maxPriority is not set: everybody may go ahead of everybody" -}}
{{- else if gt (int $highest) (dig "priority" 0 $spec | int) -}}
{{- $open = append $open (printf "defaultQueue.spec.maxPriority is %d: everybody may go ahead of others" (int $highest)) -}}
{{- end -}}
{{- if not (dig "enabled" false (dig "enforceDuration" nil $spec | default dict)) -}}
{{- $open = append $open "defaultQueue.spec.enforceDuration is not enabled: who states a short duration starts sooner and may run longer" -}}
{{- end -}}
{{- if not (dig "perNamespace" false (dig "limits" nil $spec | default dict)) -}}
{{- $open = append $open "defaultQueue.spec.limits.perNamespace is not set: one namespace may use all nodes" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.miniclusters.enabled (has "*" .Values.miniclusters.namespaces) -}}
{{- $open = append $open "miniclusters.namespaces is *: who steals the queue's identity may create pods in every managed namespace" -}}
{{- end -}}
{{- $open | toJson -}}
{{- end -}}
