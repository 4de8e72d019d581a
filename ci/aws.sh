#!/bin/bash
# Clusters of continuous integration on AWS, through a Director that the bosh CLI's environment names. ci/README.md lists what the
# Director and the account must have.
#
#   aws.sh deploy CLUSTER TARBALL                 deploys a release as a cluster
#   aws.sh test CLUSTER                           runs its errands
#   aws.sh upgrade CLUSTER SOURCE FINAL TARBALL   deploys FINAL with the manifest in the tarball SOURCE, then TARBALL
#                                                 with that of the work tree
#   aws.sh delete CLUSTER                         deletes the deployment, then sweeps
#   aws.sh sweep CLUSTER                          deletes what a cluster without a deployment has left in the account
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "Error: $1" >&2
  exit 1
}

# Only clusters of continuous integration: delete and sweep ask nobody.
command=${1:-} cluster=${2:-}
[[ $cluster == ci-* ]] || fail "the cluster is called '$cluster': its name must begin with ci-"

# deploy TARBALL FOLDER: with the manifest and the ops-files in FOLDER.
deploy() {
  local tarball version
  tarball=$(realpath "$1")
  version=$(tar -xzOf "$tarball" release.MF | sed -n 's/^version: //p')
  bosh -n -d "$cluster" deploy "$2/manifests/kubernetes.yml" \
    -o "$2/ops-files/aws.yml" -o "$2/ops-files/rename-deployment.yml" -o ops-files/dev-release.yml \
    -v cluster_name="$cluster" -v deployment_name="$cluster" \
    -v release_version="$version" -v release_url="file://$tarball"
}

run_errands() {
  bosh -n -d "$cluster" run-errand cloud-preflight
  bosh -n -d "$cluster" run-errand smoke-tests
}

# kubectl ARGUMENT…: as administrator, on a control VM. Arguments must not need quoting.
kubectl() {
  bosh -n -d "$cluster" ssh control/0 --results --column=stdout -c "sudo /var/vcap/jobs/kubectl/bin/kubectl $*"
}

# An object that was written before an upgrade must be there after it.
upgrade() {
  local final
  final=$(basename "$2")
  tar -xzf "$1" --strip-components=1 -C "$work"
  deploy "$2" "$work"
  kubectl create configmap before-upgrade --from-literal=final="$final"
  deploy "$3" .
  kubectl get configmap before-upgrade --output=yaml | grep "final: $final" ||
    fail "the ConfigMap that was created before the upgrade is gone"
  run_errands
}

# owned TYPE: the ARNs of the cluster's resources. The cloud controller tags what it creates as owned; what operators create has the value
# shared, and VMs have it too. The tagging API goes on for a while to list what was deleted.
owned() {
  aws resourcegroupstaggingapi get-resources --resource-type-filters "$1" \
    --tag-filters "Key=kubernetes.io/cluster/$cluster,Values=owned" --query 'ResourceTagMappingList[].ResourceARN' --output text
}

# remove ARGUMENT…: runs an aws command that deletes something, which may be gone.
remove() {
  local output
  output=$(aws "$@" 2>&1) || [[ $output == *NotFound\)* ]] || {
    echo "$output" >&2
    return 1
  }
}

# Load balancers come first: they use target groups and security groups. What is found is assigned first: a failure in the word list of a
# for loop would go unnoticed.
sweep() {
  local deployments found arn id
  deployments=$(bosh deployments --column=name)
  if grep -qw "$cluster" <<<"$deployments"; then
    echo "$cluster is deployed: nothing is swept"
    return
  fi
  found=$(owned elasticloadbalancing:loadbalancer)
  for arn in $found; do
    echo "deleting $arn"
    case $arn in
      *:loadbalancer/net/* | *:loadbalancer/app/*)
        aws elbv2 delete-load-balancer --load-balancer-arn "$arn"
        aws elbv2 wait load-balancers-deleted --load-balancer-arns "$arn" ;;
      *) aws elb delete-load-balancer --load-balancer-name "${arn##*/}" ;;
    esac
  done
  found=$(owned elasticloadbalancing:targetgroup)
  for arn in $found; do
    echo "deleting $arn"
    remove elbv2 delete-target-group --target-group-arn "$arn"
  done
  # The EBS CSI driver's, by both of its tags (CreateVolume and CreateSnapshot in pkg/driver/controller.go of its source): disks of BOSH have
  # the cluster's too.
  local created=("Name=tag-key,Values=kubernetes.io/cluster/$cluster" "Name=tag:ebs.csi.aws.com/cluster,Values=true")
  found=$(aws ec2 describe-volumes --filters "${created[@]}" --query 'Volumes[].VolumeId' --output text)
  for id in $found; do
    echo "deleting $id"
    remove ec2 delete-volume --volume-id "$id"
  done
  found=$(aws ec2 describe-snapshots --owner-ids self --filters "${created[@]}" --query 'Snapshots[].SnapshotId' --output text)
  for id in $found; do
    echo "deleting $id"
    remove ec2 delete-snapshot --snapshot-id "$id"
  done
  found=$(aws ec2 describe-security-groups --filters "Name=tag:kubernetes.io/cluster/$cluster,Values=owned" \
    --query 'SecurityGroups[].GroupId' --output text)
  for id in $found; do
    echo "deleting $id"
    revoke_rules "$id"
    delete_security_group "$id"
  done
}

# revoke_rules GROUP: revokes the rules that let a load balancer's group into the nodes' group. EC2 keeps a group that a rule names. A
# permission can name several groups: only this one is taken out.
revoke_rules() {
  local found group permissions
  found=$(aws ec2 describe-security-groups --filters "Name=ip-permission.group-id,Values=$1" --output json | jq -r --arg named "$1" \
    '.SecurityGroups[] | "\(.GroupId) \([.IpPermissions[] | select(any(.UserIdGroupPairs[]; .GroupId == $named)) |
      {IpProtocol, FromPort, ToPort, UserIdGroupPairs: [{GroupId: $named}]} | with_entries(select(.value != null))])"')
  while read -r group permissions; do
    [[ -z $group ]] || remove ec2 revoke-security-group-ingress --group-id "$group" --ip-permissions "$permissions"
  done <<<"$found"
}

# The network interfaces of a deleted load balancer use its security group for some minutes more.
delete_security_group() {
  local deadline=$((SECONDS + 600))
  until remove ec2 delete-security-group --group-id "$1"; do
    ((SECONDS < deadline)) || fail "security group $1 is still in use after ten minutes"
    sleep 15
  done
}

case $command in
  deploy) deploy "$3" . ;;
  test) run_errands ;;
  upgrade) upgrade "$3" "$4" "$5" ;;
  delete)
    bosh -n -d "$cluster" delete-deployment --force
    sweep ;;
  sweep) sweep ;;
  *) fail "unknown command '$command': it must be deploy, test, upgrade, delete or sweep" ;;
esac
