# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "activesupport-pgcache"
  spec.version = "0.5.0"
  spec.summary = "Rails' cache in Postgres, by pgcache"
  spec.authors = ["the pgcache developers"]
  spec.license = "PostgreSQL"
  spec.files = Dir["lib/**/*.rb", "README.md"]
  spec.required_ruby_version = ">= 3.0"
  spec.add_dependency "activesupport", ">= 6.1"
  spec.add_dependency "connection_pool", ">= 2.2.5"
  spec.add_dependency "pg", ">= 1.4"
end
