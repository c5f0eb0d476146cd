# frozen_string_literal: true

require "active_support/cache/pgcache_store"
