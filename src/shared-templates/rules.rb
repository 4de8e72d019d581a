  rules.each do |property, (valid, rule)|
    value = p(property, nil)
    next if value.nil? || valid.call(value)

    raise "#{property} is #{value.inspect.gsub(%r{//[^@/]*@}, '//...@')}: #{rule}"
  end
