# difference: storage-hint
# compiles on: none
vcl 4.1;
backend none none;
sub vcl_backend_response {
  set beresp.storage_hint = "Transient";
}
