# difference: xid-is-a-string
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_backend_fetch {
  if (bereq.xid ~ "1$") { return (abandon); }
}
