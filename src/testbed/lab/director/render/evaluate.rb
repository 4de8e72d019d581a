# Renders the ERB templates of many jobs in one process, with the methods that a BOSH Director provides
# in a template: p, if_p, link, if_link, spec, properties, name, index.
#
# Input on stdin, JSON: [{"context": {...}, "files": [{"source": "/abs/path.erb", "label": "path.erb"}]}]
# Output on stdout, JSON, same shape: [[{"content": base64} | {"error": text, "line": number|null}]]

# Ruby starts three times as fast without RubyGems, so it is loaded only for templates that use it or a library that is a gem.
Object.autoload(:Gem, "rubygems")

module Lab
  def self.with_gems
    yield
  rescue LoadError
    raise unless require "rubygems"

    retry
  end

  with_gems { %w[erb json ostruct yaml].each { |library| require library } }

  class UnknownProperty < StandardError
    def initialize(names)
      super("Can't find property '#{names.inspect}'")
    end
  end

  class UnknownLink < StandardError
    def initialize(name)
      super("Can't find link '#{name}'")
    end
  end

  # What if_p and if_link return if their condition was true: all following branches are skipped.
  class Taken
    def else; end

    def else_if_p(*)
      self
    end

    def else_if_link(*)
      self
    end
  end

  # What if_p and if_link return if their condition was false: the next branch is evaluated.
  class NotTaken
    def initialize(scope)
      @scope = scope
    end

    def else
      yield
    end

    def else_if_p(*names, &block)
      @scope.if_p(*names, &block)
    end

    def else_if_link(name, &block)
      @scope.if_link(name, &block)
    end
  end

  # Property lookup by dotted names, in the lookup_source of the including class.
  module Lookup
    def p(*arguments)
      names = Array(arguments.first)
      names.each do |name|
        value = Lookup.dig(lookup_source, name)
        return value unless value.nil?
      end
      raise UnknownProperty.new(names) if arguments.length < 2

      arguments[1]
    end

    def if_p(*names)
      values = names.map { |name| Lookup.dig(lookup_source, name) }
      return NotTaken.new(self) if values.any?(&:nil?)

      yield(*values)
      Taken.new
    end

    def self.dig(tree, name)
      name.split(".").reduce(tree) do |node, key|
        return nil if node.nil?

        node[key]
      end
    end
  end

  class LinkInstance
    include Lookup

    attr_reader :name, :index, :id, :az, :address, :properties, :bootstrap

    def initialize(raw, properties)
      @name, @index, @id, @az, @address, @bootstrap =
        raw.values_at("name", "index", "id", "az", "address", "bootstrap")
      @properties = properties
    end

    private

    def lookup_source
      @properties
    end
  end

  class Link
    include Lookup

    attr_reader :instances, :properties

    def initialize(raw)
      @raw = raw
      @properties = raw["properties"] || {}
      @instances = raw["instances"].map { |instance| LinkInstance.new(instance, @properties) }
    end

    # The provider group's DNS name. Criteria are those of a Director: azs: [names], status: a health filter.
    def address(criteria = {})
      return @raw["address"] if @raw["address"]

      filters = {"healthy" => 3, "unhealthy" => 1, "all" => 4}
      zones = Array(criteria[:azs]).map do |az|
        number = (@raw["az_numbers"] || {})[az] or raise "Unknown AZ: '#{az}'"
        "a#{number}"
      end
      slug = (zones + ["s#{filters.fetch(criteria[:status].to_s, 0)}"]).sort.join
      "q-#{slug}.#{@raw["domain"]}"
    end

    private

    def lookup_source
      @properties
    end
  end

  # An OpenStruct that can list its own keys: templates read the first network by spec.networks.methods(false).
  class Struct < OpenStruct
    def methods(regular = true)
      regular ? super : to_h.keys
    end
  end

  class Context
    include Lookup

    attr_reader :name, :index, :raw_properties

    def initialize(raw)
      @raw = raw
      @name = raw["job"]["name"] if raw["job"].is_a?(Hash)
      @index = raw["index"]
      @raw_properties = raw["properties"] || {}
      @links = raw["links"] || {}
    end

    # properties and spec are created on first use: few templates use them, and structs are slow.
    def properties
      @properties ||= unroll(@raw_properties, OpenStruct)
    end

    def spec
      @spec ||= unroll(@raw.reject { |key, _| key == "links" }, Struct)
    end

    def link(name)
      raw = Lookup.dig(@links, name)
      raise UnknownLink.new(name) unless raw&.key?("instances")

      Link.new(raw)
    end

    def if_link(name)
      raw = Lookup.dig(@links, name)
      return NotTaken.new(self) unless raw&.key?("instances")

      yield Link.new(raw)
      Taken.new
    end

    def template_binding
      binding
    end

    private

    def lookup_source
      @raw_properties
    end

    def unroll(value, kind)
      case value
      when Hash then kind.new(value.transform_values { |inner| unroll(inner, kind) })
      when Array then value.map { |inner| unroll(inner, kind) }
      else value
      end
    end
  end

  # Every file gets a context of its own, so that a template that changes a property does not affect others.
  def self.render(file, raw_context)
    label = file["label"]
    erb = ERB.new(File.read(file["source"], encoding: "UTF-8"), trim_mode: "-")
    erb.filename = label
    text = with_gems { erb.result(Context.new(Marshal.load(raw_context)).template_binding) }
    {"content" => [text].pack("m0")}
  rescue Exception => e # rubocop:disable Lint/RescueException -- a template may raise anything, even a SyntaxError
    place = (e.backtrace || []).find { |frame| frame.start_with?("#{label}:") } || e.message[/\A#{Regexp.escape(label)}:\d+/]
    {"error" => e.message, "line" => place && place[/:(\d+)/, 1].to_i}
  end
end

answer = $stdout.dup
$stdout.reopen($stderr) # keep the output of templates out of the answer
units = JSON.parse($stdin.read)
results = units.map do |unit|
  raw = Marshal.dump(unit["context"])
  unit["files"].map { |file| Lab.render(file, raw) }
end
answer.write(JSON.generate(results))
