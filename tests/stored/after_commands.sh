#!/bin/sh
# Write a workspace into the current, empty folder: after_commands.sh RECONCILER [--no-state]
# after-commands.tar.xz has both forms, written by commit 873731f9, the last that did not plan its commands as orders.
set -eu
rc=$1
state=${2-}
mkdir manifests
cat > reconciler.yaml <<'YAML'
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {state: "file://.state"}
YAML
for cluster in west east; do cat <<YAML
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: $cluster}
spec:
  embedded: {root: "file://.clusters/$cluster"}
  objectStorage: {url: "file://.bucket"}
  properties: {cloud_storage_enabled: true}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: $cluster}
---
YAML
done > manifests/all.yaml
for name in paused promoted failed reversed resting made altered; do cat <<YAML
apiVersion: reconciler/v1
kind: Topic
metadata: {name: $name, namespace: shop, cluster: west}
spec: {partitions: 1}
---
YAML
done >> manifests/all.yaml
for name in asleep roaming prepared cancelled; do cat <<YAML
apiVersion: reconciler/v1
kind: Topic
metadata: {name: $name, namespace: shop, cluster: west}
spec: {partitions: 1, configs: {remote.write: true, remote.read: true}}
---
YAML
done >> manifests/all.yaml
cat >> manifests/all.yaml <<'YAML'
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: depot, cluster: west}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: store, cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: boxes, namespace: depot, cluster: west}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: twin, cluster: east}
spec:
  source: west
  mode: bidirectional
  mirrorTopics: [{source: "shop:paused"}, {source: "shop:promoted"}, {source: "shop:failed"}, {source: "shop:reversed"}]
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: still, cluster: east}
spec:
  source: west
  mirrorTopics: [{source: "shop:resting"}]
YAML
"$rc" apply --yes
for name in paused promoted failed reversed resting made altered asleep roaming prepared cancelled; do
  printf '"%s-1"\n"%s-2"\n' $name $name | "$rc" topic produce topic/west/shop:$name --input - --input-format jsonl
done
echo '"box"' | "$rc" topic produce topic/west/depot:boxes --input - --input-format jsonl
"$rc" run --once
now() { "$rc" "$@" $state; }
now mirror pause mirror/east/shop:paused
now mirror promote mirror/east/shop:promoted --yes
now mirror failover mirror/east/shop:failed --yes
now mirror reverse mirror/east/shop:reversed --yes
now link pause link/east/still
now link create link/east/rescue --source west --prefix w.
now mirror create mirror/east/shop:w.made --link rescue
"$rc" run --once
now topic alter topic/west/shop:altered --set retention.ms=8d --yes
now topic alter topic/west/shop:asleep --set retention.ms=9d --yes
now topic unmount topic/west/shop:asleep topic/west/shop:roaming --yes
now topic mount topic/east/shop:roaming --yes
now topic unmount topic/west/shop:prepared --prepare --yes
now topic unmount topic/west/shop:cancelled --prepare --yes
now mount cancel 15 --cluster west --yes  # that of shop:cancelled
now namespace move west depot store
