import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Send a GET and two POST requests with a default client, which asks for HTTP/2. Print the version and the status of each response. */
class Requests {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        HttpRequest get = HttpRequest.newBuilder(URI.create(address + "/.well-known/openid-configuration")).build();
        for (HttpRequest request : new HttpRequest[] {get, post(address), post(address)}) {
            var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
            System.out.println(response.version() + " " + response.statusCode());
        }
    }

    private static HttpRequest post(String address) {
        return HttpRequest.newBuilder(URI.create(address + "/auth/introspect"))
            .header("Content-Type", "application/x-www-form-urlencoded")
            .POST(HttpRequest.BodyPublishers.ofString("token=unknown"))
            .build();
    }
}
