{{/* What nobody can mean. Each check ends the rendering with one sentence: what is wrong, and the values that repair it. */}}

{{/* Pods that are left to a scheduler that does not run would wait for ever. */}}
{{- define "fluxqueue.check.scheduler" -}}
{{- if not .Values.scheduler.enabled -}}
{{- if eq .Values.scheduler.default "fluxion" -}}
{{- fail "scheduler.default is fluxion, but scheduler.enabled is false: enable the scheduler, or set scheduler.default to stock" -}}
{{- end -}}
{{- if and .Values.defaultQueue.create (eq (dig "scheduler" "" .Values.defaultQueue.spec) "fluxion") -}}
{{- fail "defaultQueue.spec.scheduler is fluxion, but scheduler.enabled is false: enable the scheduler, or set it to stock" -}}
{{- end -}}
{{- if .Values.scheduler.extender.enabled -}}
{{- fail "scheduler.extender.enabled is true, but scheduler.enabled is false: the scheduler serves the extender, enable it" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whoever reaches the extender can have pods bound. */}}
{{- define "fluxqueue.check.extender" -}}
{{- if and .Values.scheduler.extender.enabled (not .Values.scheduler.extender.clientCASecret) -}}
{{- fail "scheduler.extender.enabled is true, but scheduler.extender.clientCASecret is empty: name the Secret with the authority (ca.crt) that has signed kube-scheduler's certificate" -}}
{{- end -}}
{{- end -}}

{{/* A matcher that nobody runs, or that nobody asks. */}}
{{- define "fluxqueue.check.matcher" -}}
{{- $foreign := .Values.fluxion.foreign -}}
{{- if eq .Values.queue.config.matcher "foreign" -}}
{{- if and (not $foreign.address) (not $foreign.image.repository) -}}
{{- fail "queue.config.matcher is foreign, and nothing says where it is: set fluxion.foreign.address, or fluxion.foreign.image.repository to run it next to each queue" -}}
{{- end -}}
{{- else if or $foreign.address $foreign.image.repository -}}
{{- fail "fluxion.foreign names a service, but queue.config.matcher is own: set it to foreign, or remove fluxion.foreign" -}}
{{- end -}}
{{- end -}}

{{/* The queue would see MiniClusters and could make nothing of any. */}}
{{- define "fluxqueue.check.miniclusters" -}}
{{- if and .Values.miniclusters.enabled (not .Values.miniclusters.namespaces) -}}
{{- fail "miniclusters.enabled is true, but miniclusters.namespaces is empty: name the namespaces in which the queue may make their objects, or [\"*\"] for all" -}}
{{- end -}}
{{- if and (has "*" .Values.miniclusters.namespaces) (gt (len .Values.miniclusters.namespaces) 1) -}}
{{- fail "miniclusters.namespaces has \"*\", which means all, and others: leave one of them out" -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration such as 2160h or 1h30m. */}}
{{- define "fluxqueue.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $unit := index (dict "h" 3600 "m" 60 "s" 1) (trunc -1 .) -}}
{{- $seconds = add $seconds (mul (atoi (regexFind "^[0-9]+" .)) $unit) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* cert-manager refuses what is shorter, after the installation and not to the person who installs. */}}
{{- define "fluxqueue.check.certificates" -}}
{{- $config := .Values.certificates.certManager -}}
{{- $duration := include "fluxqueue.seconds" $config.duration | int -}}
{{- $before := include "fluxqueue.seconds" $config.renewBefore | int -}}
{{- if lt $duration 3600 -}}
{{- fail (printf "certificates.certManager.duration is %s: cert-manager issues none for less than 1h" $config.duration) -}}
{{- end -}}
{{- if lt $before 300 -}}
{{- fail (printf "certificates.certManager.renewBefore is %s: a renewal takes longer to reach every program, leave it 5m or more" $config.renewBefore) -}}
{{- end -}}
{{- if ge $before $duration -}}
{{- fail (printf "certificates.certManager.renewBefore (%s) has to be shorter than certificates.certManager.duration (%s): the certificate would be renewed without end" $config.renewBefore $config.duration) -}}
{{- end -}}
{{- end -}}

{{/*
Namespaces that the queue, or the API server on the way to it, may need to start: network, certificates, storage, DNS, admission, operators
of Postgres. Their pods would wait for a queue that waits for them.
*/}}
{{- define "fluxqueue.foundations" -}}
{{- $names := list "calico-apiserver" "calico-system" "cattle-system" "cert-manager" "cilium" "cilium-secrets" "cnpg-system" "gatekeeper-system" "ingress-nginx" "istio-system" "kube-flannel" "kube-ovn" "kube-router" "kyverno" "linkerd" "local-path-storage" "longhorn-system" "metallb-system" "openebs" "postgres-operator" "rook-ceph" "tigera-operator" "weave" -}}
{{- $exempt := include "fluxqueue.exemptNamespaces" . | fromJsonArray -}}
{{- $found := list -}}
{{- range (lookup "v1" "Namespace" "" "" | default dict).items -}}
{{- $label := dig "metadata" "labels" "fluxqueue/managed" "" . -}}
{{- if and (has .metadata.name $names) (not (has .metadata.name $exempt)) (ne $label "false") -}}
{{- $found = append $found .metadata.name -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* At an installation. An upgrade does not fail for it, because the cluster works already; NOTES say it then. */}}
{{- define "fluxqueue.check.namespaces" -}}
{{- if and .Release.IsInstall (eq .Values.namespaces "allButSystem") (not .Values.exemptionsAcknowledged) -}}
{{- $found := include "fluxqueue.foundations" . | fromJsonArray -}}
{{- if $found -}}
{{- fail (printf "namespaces is allButSystem, and pods of %s would wait for fluxqueue, which may wait for them: list these namespaces in exemptNamespaces, or set exemptionsAcknowledged to true" (join ", " $found)) -}}
{{- end -}}
{{- if not .Values.exemptNamespaces -}}
{{- fail "namespaces is allButSystem and exemptNamespaces is empty: list there the namespaces of the network (CNI), of cert-manager, of storage and of a Postgres operator you use, because their pods would wait for fluxqueue; set exemptionsAcknowledged to true if there are none" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A target that is never scraped looks like one that is down. */}}
{{- define "fluxqueue.check.monitoring" -}}
{{- if .Values.monitoring.serviceMonitor.enabled -}}
{{- if not .Values.rbac.metricsReadableBy -}}
{{- fail "monitoring.serviceMonitor.enabled is true and rbac.metricsReadableBy is empty: name Prometheus' ServiceAccount there as namespace:name, or nobody may read the metrics" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- fail "monitoring.serviceMonitor.enabled is true and networkPolicy.metricsFrom is empty: name Prometheus' namespace there, or nobody reaches the metrics" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Without a cluster nothing can be read back: what Helm makes at random would be another one in each rendering. */}}
{{- define "fluxqueue.check.gitOps" -}}
{{- if and .Values.gitOps .Values.postgres.enabled -}}
{{- if not .Values.postgres.existingSecret -}}
{{- fail "gitOps is true and postgres.existingSecret is empty: each rendering would make another password; name a Secret with the keys password and url, or set postgres.enabled to false" -}}
{{- end -}}
{{- if and (not .Values.postgres.tls.existingSecret) (eq .Values.certificates.mode "selfManaged") -}}
{{- fail "gitOps is true and postgres.tls.existingSecret is empty: each rendering would make another certificate; name a Secret, or set certificates.mode to certManager" -}}
{{- end -}}
{{- end -}}
{{- end -}}
