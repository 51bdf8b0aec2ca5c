# difference: cookie-string
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
import cookie;
sub vcl_recv {
  cookie.parse(req.http.Cookie);
  set req.http.Cookie = cookie.get_string();
}
