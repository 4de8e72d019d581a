  config = "/var/vcap/jobs/#{job}/config"
  cluster = link('cluster')
  metrics = p('metrics.bind_address', nil) || cluster.p('cluster.metrics_bind_address')
  host = p('api.host', nil) || cluster.p('api.hostname')

  # What operators use in place of these in extra_args: src/shared-templates/flags/JOB.yml.
  flags = {
    'authentication-kubeconfig' => "#{config}/kubeconfig.json",
    'authorization-kubeconfig' => "#{config}/kubeconfig.json",
    'bind-address' => metrics,
    'cloud-config' => ("#{config}/cloud.conf" unless cloud.p('config').to_s.strip.empty?),
    'cloud-provider' => cloud.p('type'),
    'cluster-name' => cluster.p('cluster.name'),
    'kubeconfig' => "#{config}/kubeconfig.json",
    'leader-elect' => true,
    'profiling' => false,
    'tls-cert-file' => "#{config}/server.pem",
    'tls-cipher-suites' => cluster.p('tls.cipher_suites'),
    'tls-min-version' => cluster.p('tls.min_version'),
    'tls-private-key-file' => "#{config}/server.key",
    'use-service-account-credentials' => true,
    'v' => p('log_level')
  }

  JSON.pretty_generate(
    'process' => job,
    'executable' => executable,
    'flags' => flags.merge(routes).sort.to_h,
    'environment' => cloud.p('environment'),
    'certificates' => [
      { 'property' => 'tls.client', 'usage' => 'client' },
      { 'property' => 'tls.server', 'usage' => 'server', 'names' => ['127.0.0.1'] }
    ],
    'wait_for' => [{
      'url' => "https://#{host}:#{cluster.p('api.port')}/readyz",
      'client' => 'tls.client',
      # In a new cluster, kubernetes-addons grants this permission once the whole control plane runs.
      'access_review' => { 'verb' => 'create', 'group' => 'authentication.k8s.io', 'resource' => 'tokenreviews' }
    }],
    # The user of all processes that act in the cloud, on AWS with the VM's role.
    'user_id' => 1_900_000_008,
    'capabilities' => [],
    'private_dir' => config
  )
